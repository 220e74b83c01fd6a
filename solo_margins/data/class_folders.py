"""Image files and class folders: what counts as an image, reading one, checks of a folder."""

import logging
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

log = logging.getLogger("solo_margins.data")

# What was warned of once in this process.
_warned: set[str] = set()

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
    # File names may hold line breaks and undecodable bytes.
    shown = os.fspath(path) if str(path).isprintable() else ascii(os.fspath(path))
    raise UnreadableImage(f"{shown} cannot be read as an image: {reason}.") from None


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


def _as_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "F":
        raise ValueError("it has floating-point values of unknown range")
    if image.mode.startswith("I"):
        # PIL's own conversion clips 16 bits at 255.
        values = np.asarray(image)
        if values.dtype.itemsize > 2 and (values.min() < 0 or values.max() > 65535):
            raise ValueError("its grey values have more than 16 bits, their range is unknown")
        # 65535 = 255 · 257
        image = Image.fromarray(((values.astype(np.uint32) + 128) // 257).astype(np.uint8))
    if image.mode == "P" and "transparency" in image.info:
        # Same colours; without this step PIL warns about every such image.
        image = image.convert("RGBA")
    return image.convert("RGB")


def folders_in(root: str | Path, without: Path | None = None) -> list[str]:
    """Return the sorted names of the folders in ``root``, except hidden ones and ``without``."""
    left_out = None if without is None else os.path.abspath(without)
    with os.scandir(root) as entries:
        names = [e.name for e in entries if e.is_dir() and not is_hidden(e.name)]
    return sorted(name for name in names if os.path.abspath(os.path.join(root, name)) != left_out)


def images_below(folder: str | Path) -> Iterator[str]:
    """Yield the paths of the images in a folder, at any depth, in no particular order."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir() and not is_hidden(entry.name):
                yield from images_below(entry.path)
            elif is_image(entry.name):
                yield entry.path


def classes_in(root: str | Path, without: Path | None = None) -> list[str]:
    """Return the sorted names of the folders that hold images."""
    names = folders_in(root, without)
    # Stops at the first image instead of listing all of them.
    return [name for name in names if any(images_below(os.path.join(root, name)))]


def images_in(folder: str | Path) -> list[str]:
    """Return the sorted names of the images directly inside a folder."""
    with os.scandir(folder) as entries:
        return sorted(e.name for e in entries if is_image(e.name) and e.is_file())


def check_classes(key: str, root: Path, classes: Sequence[str], without: Path | None) -> None:
    """Refuse a folder without images in class folders; warn about empty class folders."""
    if not classes:
        raise ValueError(_no_images(key, root))
    empty = set(folders_in(root, without)) - set(classes)
    _warn_of(f"{key}={root}: ignored class folders without images", empty)


def _no_images(key: str, root: Path) -> str:
    advice = f"images end with {', '.join(EXTENSIONS)}"
    if images_in(root):
        advice = "data.no_labels=true pretrains on the images directly inside it"
    return f"{key}={root} has no images in class folders: {advice}."


def check_unlabelled(key: str, root: Path) -> None:
    """Refuse a folder without images directly inside it; warn about other files."""
    images = images_in(root)
    if not images:
        inside, hint = "", f"images end with {', '.join(EXTENSIONS)}"
        if classes_in(root):
            inside = " except in folders inside it"
            hint = "data.no_labels=false takes these folders as classes"
        raise ValueError(f"data.no_labels=true, but {key}={root} holds no images{inside}: {hint}.")
    files = {path.name for path in root.iterdir() if path.is_file() and not is_hidden(path.name)}
    _warn_of(f"{key}={root}: ignored files without the extension of an image", files - set(images))


def check_same_classes(
    train: Path, val: Path, classes: Sequence[str], found: Sequence[str], present: Sequence[str]
) -> None:
    """Refuse validation images of classes without training images.

    Args:
        train: folder of the training images.
        val: folder of the validation images.
        classes: class folders with training images.
        found: class folders with validation images.
        present: all class folders of the validation, empty ones included.
    """
    differing = sorted(set(found) - set(classes)) or sorted(set(classes) - set(present))
    if differing:
        raise ValueError(
            f"data.val_path={val} must hold the same class folders as data.train_path={train}, "
            f"but {differing[0]!r} is in only one of the two."
        )
    if not found:
        raise ValueError(_no_images("data.val_path", val))
    _warn_of(f"data.val_path={val}: class folders without images", set(classes) - set(found))


def _warn_of(what: str, names: Collection[str]) -> None:
    """Log a warning about files or folders once, on the first rank of each machine."""
    if names and what not in _warned and os.environ.get("LOCAL_RANK", "0") == "0":
        _warned.add(what)
        log.warning("%s: %s, for example %r.", what, f"{len(names):,}", min(names))
