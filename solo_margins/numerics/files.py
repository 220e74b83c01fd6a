"""Where a run keeps its files, and which files its images come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def run_folder(trainer: Any) -> Path:
    """Return the folder that solo-learn's checkpointer writes to, or else the trainer's."""
    for callback in trainer.callbacks:
        path = getattr(callback, "path", None)
        if path is not None and hasattr(callback, "ckpt_placeholder"):
            return Path(path)
    return Path(trainer.default_root_dir)


def files_of(trainer: Any, indexes: list[list[int]]) -> list[list[str]] | None:
    """Return the files behind image indexes, None where the data set does not know them."""
    images: Any = getattr(trainer.train_dataloader, "dataset", None)
    file = getattr(images, "file", None)
    if file is None:
        return None
    number = len(images)
    return [[file(index) for index in part if index < number] for part in indexes]
