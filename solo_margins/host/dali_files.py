"""The files that DALI is given, and the one that it could not decode."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from solo_margins.host import class_folders, named_data
from solo_margins.host.image_files import UnreadableImage, read_image

SECONDS_OF_SEARCH = 60.0


class VisibleImages:
    """Stands for ``os`` where solo-learn lists files for DALI: hidden ones are not there."""

    @staticmethod
    def scandir(root: Any) -> list[os.DirEntry[str]]:
        """Return the class folders that hold images."""
        known = named_data.current().classes_of(root)
        classes = class_folders.classes_in(root) if known is None else known
        with os.scandir(root) as entries:
            return [entry for entry in entries if entry.name in classes]

    @staticmethod
    def listdir(folder: Any) -> list[str]:
        """Return the images in a folder."""
        names = class_folders.images_in(folder)
        animated = next((name for name in names if name.lower().endswith(".gif")), None)
        if animated is not None:
            raise UnreadableImage(
                f"{os.path.join(folder, animated)} is no image that DALI can read: remove or "
                "convert .gif files, or use data.format=image_folder."
            )
        return names


def labelled_files(root: Any) -> tuple[list[str], list[int]]:
    """Return all images in class folders, and their labels."""
    folders = sorted(entry.name for entry in VisibleImages.scandir(root))
    found = [
        (os.path.join(root, folder, name), label)
        for label, folder in enumerate(folders)
        for name in VisibleImages.listdir(os.path.join(root, folder))
    ]
    return [file for file, _ in found], [label for _, label in found]


def is_from_dali(error: BaseException) -> bool:
    """Tell whether a pipeline of DALI has failed."""
    return isinstance(error, RuntimeError) and "Critical error in pipeline" in str(error)


def explanation(error: BaseException, folders: Iterable[Any]) -> str | None:
    """Return one sentence about an image that DALI could not read, None where it was no image.

    DALI names a file that it cannot open, but none that it cannot decode: for that one the folders
    are searched.
    """
    text = str(error)
    unopened = re.search(r"(?:File mapping failed|[Oo]pen[^:\n]*): (.+)", text)
    if unopened is not None:
        return (
            f"DALI cannot open {unopened[1].strip()}: it is empty, missing or not to be read; "
            "repair or remove it."
        )
    if "decoders" not in text:
        return None
    reason = re.search(r"encountered:\s+(.+)", text)
    said = f"DALI cannot decode an image ({reason[1].strip() if reason else 'it does not say why'})"
    found = _first_unreadable(folders)
    if found is not None:
        return f"{said}: {found.rstrip('.')}; repair or remove it."
    return f"{said}, and does not name it; data.format=image_folder would."


def _first_unreadable(folders: Iterable[Any]) -> str | None:
    """Return what PIL says about the first image that it cannot read, None if there is none."""
    stop = time.monotonic() + SECONDS_OF_SEARCH
    for folder in folders:
        if folder is None or not Path(folder).is_dir():
            continue
        classes = dict.fromkeys(class_folders.folders_in(folder), 0)
        files = [os.path.join(folder, name) for name in class_folders.images_in(folder)]
        files += [file for file, _ in class_folders.labelled_images(folder, classes)]
        for file in files:
            try:
                read_image(file)
            except UnreadableImage as error:
                return str(error)
            if time.monotonic() > stop:
                return None
    return None
