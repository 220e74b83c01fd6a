"""Loads checkpoints without executing code: tensors and plain data only."""

from __future__ import annotations

import os
import pickle
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

# Makes every torch.load of the process refuse anything but tensors and plain data.
FORCE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
OPPOSITE = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"

# Learning rate schedules with milestones store a Counter, which torch 2.1 does not allow yet.
torch._weights_only_unpickler._get_allowed_globals().setdefault("collections.Counter", Counter)


def read_checkpoint(path: str | Path, in_place: bool = False) -> dict[str, Any]:
    """Return the content of a checkpoint; nothing in the file is executed.

    Args:
        path: of the file.
        in_place: map the file into memory instead of reading it.

    Raises:
        ValueError: the file is damaged, or holds more than tensors and plain data.
    """
    try:
        content = torch.load(os.fspath(path), map_location="cpu", weights_only=True, mmap=in_place)
    # A damaged file may raise any error.
    except Exception as error:
        if in_place and "mmap can only be used" in str(error):
            return read_checkpoint(path)
        raise ValueError(_message(path, error)) from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a checkpoint: it holds a {type(content).__name__}.")
    return content


def _message(path: str | Path, error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, pickle.UnpicklingError):
        # "Unsupported global: GLOBAL posix.system was not an allowed global by default.", and
        # "Unsupported class posix.system" from torch 2.1.
        named = re.search(r"(?:GLOBAL|Unsupported class) ([\w.]+)", text)
        if named is not None or _is_bare_pickle(path):
            example = f", for example {named[1]}" if named else ""
            return (
                f"{path} was not loaded: it holds more than tensors and plain data{example}, and "
                "could execute code when loaded."
            )
    reason = text.split(". ")[0].rstrip(".") or type(error).__name__
    return f"{path} is damaged or not a checkpoint ({reason})."


def _is_bare_pickle(path: str | Path) -> bool:
    """Return whether a file is a pickle that PyTorch did not write, which may hold anything."""
    with open(path, "rb") as file:
        return file.read(1) == pickle.PROTO


def refuse_unsafe(path: str | Path) -> None:
    """Raise ``ValueError`` unless a checkpoint can be loaded without executing code."""
    read_checkpoint(path, in_place=True)


@contextmanager
def safe_loading() -> Iterator[None]:
    """Forbid every load in this process, also Lightning's and solo-learn's, to execute code."""
    before = {name: os.environ.get(name) for name in (FORCE, OPPOSITE)}
    os.environ[FORCE] = "1"
    os.environ.pop(OPPOSITE, None)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
