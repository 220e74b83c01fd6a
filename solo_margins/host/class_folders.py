"""Class folders of images: which of them count, and one numbering for training and validation."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from solo_margins.host.image_files import EXTENSIONS, is_hidden, is_image

log = logging.getLogger("solo_margins.data")

_told: set[str] = set()


def folders_in(root: str | Path, without: Path | None = None) -> list[str]:
    """Return the names of the folders in a folder, sorted, without hidden ones and one other."""
    left_out = None if without is None else os.path.abspath(without)
    with os.scandir(root) as entries:
        names = [e.name for e in entries if e.is_dir() and not is_hidden(e.name)]
    return sorted(name for name in names if os.path.abspath(os.path.join(root, name)) != left_out)


def holds_images(folder: str | Path) -> bool:
    """Tell whether there is an image in a folder, or in folders inside of it."""
    inside = []
    with os.scandir(folder) as entries:
        # Not a listing of all: the first image is enough.
        for entry in entries:
            if is_image(entry.name) and entry.is_file():
                return True
            if entry.is_dir() and not is_hidden(entry.name):
                inside.append(entry.path)
    return any(holds_images(path) for path in inside)


def classes_in(root: str | Path, without: Path | None = None) -> list[str]:
    """Return the folders that hold images, sorted."""
    return [name for name in folders_in(root, without) if holds_images(os.path.join(root, name))]


def labelled_images(root: str | Path, labels: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the files of all images in class folders with their labels, in torchvision's order."""
    found: list[tuple[str, int]] = []
    for name, label in sorted(labels.items()):
        walked = []
        for folder, inside, files in os.walk(os.path.join(root, name), followlinks=True):
            inside[:] = [other for other in inside if not is_hidden(other)]
            walked.append((folder, files))
        for folder, files in sorted(walked):
            found.extend((os.path.join(folder, f), label) for f in sorted(files) if is_image(f))
    return found


def images_in(folder: str | Path) -> list[str]:
    """Return the names of the images that lie in a folder itself, sorted."""
    with os.scandir(folder) as entries:
        return sorted(e.name for e in entries if is_image(e.name) and e.is_file())


def check_classes(key: str, root: Path, classes: Sequence[str], without: Path | None) -> None:
    """Refuse a folder without images in class folders; tell which class folders are left out."""
    if not classes:
        raise ValueError(no_images(key, root))
    empty = sorted(set(folders_in(root, without)) - set(classes))
    if empty:
        tell_once(
            f"{key}={root}: left out {_counted(len(empty), 'class folder')} without images, "
            f"for example {empty[0]!r}."
        )


def no_images(key: str, root: str | Path) -> str:
    """Return a sentence about a folder that should hold class folders with images."""
    reason = "has no images in folders for each class"
    if images_in(root):
        advice = "data.no_labels=true pretrains on the images that lie in the folder itself"
    else:
        advice = f"images end with {', '.join(EXTENSIONS)}"
    return f"{key}={root} {reason}: {advice}."


def check_unlabelled(key: str, root: Path) -> None:
    """Refuse a folder without images in the folder itself; tell of files that are none."""
    images = images_in(root)
    if not images:
        inside = " but in folders inside of it" if classes_in(root) else ""
        advice = (
            "data.no_labels=false takes those for classes"
            if inside
            else f"images end with {', '.join(EXTENSIONS)}"
        )
        raise ValueError(f"{key}={root} holds no images{inside}, data.no_labels=true: {advice}.")
    with os.scandir(root) as entries:
        visible = [e.name for e in entries if e.is_file() and not is_hidden(e.name)]
    others = sorted(set(visible) - set(images))
    if others:
        tell_once(
            f"{key}={root}: left out {_counted(len(others), 'file')} whose name is not "
            f"that of an image, for example {others[0]!r}."
        )


def check_same_classes(
    train: Path, val: Path, classes: Sequence[str], found: Sequence[str], present: Sequence[str]
) -> None:
    """Refuse validation images of classes that are not trained on.

    Args:
        train: folder of the training images.
        val: folder of the validation images.
        classes: class folders with training images.
        found: class folders with validation images.
        present: all class folders of the validation.
    """
    differing = sorted(set(found) - set(classes)) or sorted(set(classes) - set(present))
    if differing:
        raise ValueError(
            f"data.val_path={val} must hold the same class folders as data.train_path={train}, "
            f"but {differing[0]!r} is in one of the two only."
        )
    if not found:
        raise ValueError(no_images("data.val_path", val))
    empty = sorted(set(classes) - set(found))
    if empty:
        tell_once(
            f"data.val_path={val}: {_counted(len(empty), 'class folder')} without images, "
            f"for example {empty[0]!r}."
        )


def tell_once(text: str) -> None:
    """Warn; of several processes the first one does, and a second call says nothing."""
    if text not in _told and os.environ.get("LOCAL_RANK", "0") == "0":
        _told.add(text)
        log.warning("%s", text)


def _counted(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number:,} {what}s"
