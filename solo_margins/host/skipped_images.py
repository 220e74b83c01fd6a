"""Images that cannot be read: named and refused, or replaced by another one, counted and told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from solo_margins.host import named_data
from solo_margins.host.image_files import UnreadableImage

ATTEMPTS = 100
"""Images in a row that may be unreadable before a data set is given up."""

log = logging.getLogger("solo_margins.data")


class SkippedImages:
    """Reads images of one data set, another one in the place of each that cannot be read.

    Which images were skipped is kept in memory that all workers share, so that each of them is
    told once and the process that trains knows them all.

    Args:
        number: images of the data set.
    """

    def __init__(self, number: int) -> None:
        self.told = 0
        """How many of them the last report was about."""
        self.is_skipped = torch.zeros(number, dtype=torch.bool).share_memory_()

    def read(self, index: int, number: int, item: Callable[[int], Any], name: Any) -> Any:
        """Return an item of a data set, or the next one that can be read.

        Args:
            index: of the item.
            number: items of the data set.
            item: returns the item of an index.
            name: returns the file of an index.
        """
        for attempt in range(min(ATTEMPTS, number)):
            candidate = (index + attempt) % number
            try:
                return item(candidate)
            except UnreadableImage as error:
                if not self.is_skipped[candidate]:
                    self.is_skipped[candidate] = True
                    log.warning("Skipped: %s", error)
        raise UnreadableImage(
            f"None of {min(ATTEMPTS, number)} images in a row can be read, the first is "
            f"{name(index)}: data.on_error=skip is for single damaged images."
        )

    def indexes(self) -> list[int]:
        """Return which images were skipped."""
        return [int(index) for index in self.is_skipped.nonzero().flatten()]


class ReadsImages:
    """What a data set of image files needs to obey ``data.on_error``; written before its base."""

    skipped: SkippedImages | None = None

    def remember_skipped(self) -> None:
        """Choose between an error and another image; to be called when the files are known."""
        if named_data.current().on_error == "skip":
            self.skipped = SkippedImages(len(self))  # type: ignore[arg-type]

    def file(self, index: int) -> str:
        """Return the file of an image."""
        raise NotImplementedError

    def __getitem__(self, index: int) -> Any:
        """Return an image with its label; see ``data.on_error`` for one that cannot be read."""
        item: Callable[[int], Any] = super().__getitem__  # type: ignore[misc]
        if self.skipped is not None:
            return self.skipped.read(index, len(self), item, self.file)  # type: ignore[arg-type]
        try:
            return item(index)
        except UnreadableImage as error:
            raise UnreadableImage(
                f"{str(error).rstrip('.')}; repair or remove it, or let data.on_error=skip take "
                "another image in its place."
            ) from None


def skipped_files(loaders: Iterable[Any]) -> tuple[list[str], int]:
    """Return the files that were skipped, and of how many.

    Args:
        loaders: loaders or data sets; what is no data set of image files is passed over.
    """
    seen: dict[int, Any] = {}
    for loader in loaders:
        images = _innermost(loader)
        if isinstance(images, ReadsImages):
            seen[id(images)] = images
    files: list[str] = []
    number = 0
    for images in seen.values():
        number += len(images)
        if images.skipped is not None:
            files.extend(images.file(index) for index in images.skipped.indexes())
    return sorted(set(files)), number


def _innermost(images: Any) -> Any:
    """Return the data set that a loader or a subset takes its images from."""
    while not isinstance(images, ReadsImages) and hasattr(images, "dataset"):
        images = images.dataset
    return images


def report(images: Any, title: str) -> None:
    """Say how many images of a data set were skipped, unless that was said before."""
    files, number = skipped_files([images])
    images = _innermost(images)
    if files and images.skipped.told < len(files):
        images.skipped.told = len(files)
        log.warning("%s: %s", title.capitalize(), total(files, number))


def total(files: Sequence[str], number: int) -> str:
    """Return one sentence about skipped images."""
    share = "1 image" if len(files) == 1 else f"{len(files):,} images"
    return (
        f"Skipped {share} of {number:,} that cannot be read (data.on_error=skip); "
        "others were seen in their place."
    )
