"""Reading one image file as RGB, whatever its mode; which files are images."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

# File extensions of images: those of torchvision and .gif.
EXTENSIONS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


class UnreadableImage(ValueError):
    """An image file cannot be read; the message is one sentence that names it.

    PyTorch re-raises an error of a worker with the whole stack trace as its message; the sentence
    is the last line of it.
    """

    def __init__(self, message: str) -> None:
        last = message.strip().splitlines()[-1]
        super().__init__(last.removeprefix(f"{__name__}.{type(self).__name__}: "))


def is_hidden(name: str) -> bool:
    """Return whether a file or folder is hidden, such as ``.DS_Store`` or ``._x.jpg``."""
    return name.startswith(".")


def is_image(path: str | Path) -> bool:
    """Return whether a file is an image, by its name.

    >>> [is_image(name) for name in ("a/B.JPEG", "a/._b.jpg", "notes.txt")]
    [True, False, False]
    """
    name = os.path.basename(path)
    return not is_hidden(name) and name.lower().endswith(EXTENSIONS)


def read_image(path: str | Path) -> Image.Image:
    """Return an image as RGB: its first frame, 16-bit grey values scaled to 8 bits.

    Raises:
        UnreadableImage: the file is missing, damaged, too large or not an image.
    """
    try:
        with open(path, "rb") as file, Image.open(file) as image:
            return _as_rgb(image)
    except Image.DecompressionBombError:
        limit = f"{2 * (Image.MAX_IMAGE_PIXELS or 0):,}"
        reason = f"it has more than {limit} pixels, PIL's decompression-bomb limit"
    except MemoryError:
        reason = "it does not fit into the memory"
    # Decoders raise any kind of error on damaged files.
    except Exception as error:
        reason = _reason(error, path)
    raise UnreadableImage(f"{_printable(path)} cannot be read as an image: {reason}.") from None


def _reason(error: Exception, path: Any) -> str:
    try:
        if os.path.getsize(path) == 0:
            return "the file is empty"
    except OSError:
        pass
    if isinstance(error, Image.UnidentifiedImageError):
        return "PIL does not recognise its content as an image"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def _printable(path: Any) -> str:
    text = os.fspath(path)
    # File names may hold line breaks and undecodable bytes.
    return text if text.isprintable() else ascii(text)


def _as_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "F":
        raise ValueError("it has floating-point values of unknown range")
    if image.mode.startswith("I"):
        return _from_wide_grey(np.asarray(image))
    if image.mode == "P" and "transparency" in image.info:
        # Same colours; without this step PIL warns about every such image.
        image = image.convert("RGBA")
    return image.convert("RGB")


def _from_wide_grey(values: Any) -> Image.Image:
    """Scale 16 bits to 8; PIL's own conversion clips at 255."""
    if values.dtype.itemsize > 2 and (values.min() < 0 or values.max() > 65535):
        raise ValueError("its grey values have more than 16 bits, their range is unknown")
    # 65535 = 255 · 257
    grey = (values.astype(np.uint32) + 128) // 257
    return Image.fromarray(grey.astype(np.uint8)).convert("RGB")
