"""One image file: which files are images, and what is read from them whatever their mode."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

EXTENSIONS = (
    ".bmp",
    ".gif",
    ".jpeg",
    ".jpg",
    ".pgm",
    ".png",
    ".ppm",
    ".tif",
    ".tiff",
    ".webp",
)
"""Endings of image files: torchvision's and ``.gif``."""


class UnreadableImage(ValueError):
    """An image file cannot be used; the message is one sentence that names it.

    A worker that loads data hands its errors over as a text with a stack trace in it, of which the
    last line is the sentence.
    """

    def __init__(self, message: str) -> None:
        last = message.strip().splitlines()[-1]
        super().__init__(last.removeprefix(f"{__name__}.{type(self).__name__}: "))


def is_hidden(name: str) -> bool:
    """Tell whether a file or folder is not meant to be seen: ``.DS_Store``, ``._x.jpg``, …"""
    return name.startswith(".")


def is_image(path: str | Path) -> bool:
    """Tell by its name whether a file is an image.

    >>> [is_image(name) for name in ("a/B.JPEG", "a/._b.jpg", "notes.txt")]
    [True, False, False]
    """
    name = os.path.basename(path)
    return not is_hidden(name) and name.lower().endswith(EXTENSIONS)


def read_image(path: str | Path) -> Image.Image:
    """Return an image as RGB: the first frame, grey values of 16 bits scaled to 8.

    Raises:
        UnreadableImage: the file is missing, damaged, too large or of an unknown kind.
    """
    try:
        with open(path, "rb") as file, Image.open(file) as image:
            return _as_rgb(image)
    except Image.DecompressionBombError:
        limit = f"{2 * (Image.MAX_IMAGE_PIXELS or 0):,}"
        reason = f"it has more than {limit} pixels, as files have that are made to fill the memory"
    except MemoryError:
        reason = "it does not fit into the memory"
    # Decoders of damaged files raise whatever they stumble over.
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
        return "its content is no image that PIL knows"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def _printable(path: Any) -> str:
    text = os.fspath(path)
    # Line breaks are allowed in names, and undecodable bytes cannot be printed.
    return text if text.isprintable() else ascii(text)


def _as_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "F":
        raise ValueError("its values are floating-point numbers whose range is not known")
    if image.mode.startswith("I"):
        return _from_wide_grey(np.asarray(image))
    if image.mode == "P" and "transparency" in image.info:
        # The same colours; without this step PIL warns of every such image.
        image = image.convert("RGBA")
    return image.convert("RGB")


def _from_wide_grey(values: Any) -> Image.Image:
    """Scale 16 bits to 8; PIL's own conversion makes everything from 255 on white."""
    if values.dtype.itemsize > 2 and (values.min() < 0 or values.max() > 65535):
        raise ValueError("its grey values have more than 16 bits, whose range is not known")
    # 65535 = 255 · 257
    grey = (values.astype(np.uint32) + 128) // 257
    return Image.fromarray(grey.astype(np.uint8)).convert("RGB")
