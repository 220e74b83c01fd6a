"""Which files a run's images come from."""

from __future__ import annotations

from typing import Any


def files_of(trainer: Any, indexes: list[list[int]]) -> list[list[str]] | None:
    """Return the files behind image indexes, None where the data set does not know them."""
    images: Any = getattr(trainer.train_dataloader, "dataset", None)
    file = getattr(images, "file", None)
    if file is None:
        return None
    number = len(images)
    return [[file(index) for index in part if index < number] for part in indexes]
