"""Reading checkpoints as what they should be, tensors and plain data: never as programs."""

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

FORCE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
"""Makes PyTorch load nothing but tensors and plain data, whoever calls it."""
OPPOSITE = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"

# Schedules by milestones hold a Counter, plain data that torch 2.1 does not take for such. Later
# ones do, and nothing changes there.
torch._weights_only_unpickler._get_allowed_globals().setdefault("collections.Counter", Counter)


def read_checkpoint(path: str | Path, in_place: bool = False) -> dict[str, Any]:
    """Return the content of a checkpoint; nothing in the file is executed.

    Args:
        path: of the file.
        in_place: leave tensors in the file until they are used.

    Raises:
        ValueError: the file is damaged, or holds more than tensors and plain data; the message is
            one sentence.
    """
    try:
        content = torch.load(os.fspath(path), map_location="cpu", weights_only=True, mmap=in_place)
    # Damaged files make PyTorch stumble over anything.
    except Exception as error:
        if in_place and "mmap can only be used" in str(error):
            return read_checkpoint(path)
        raise ValueError(_complaint(path, error)) from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is no checkpoint: it holds a {type(content).__name__}.")
    return content


def _complaint(path: str | Path, error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, pickle.UnpicklingError):
        # "Unsupported global: GLOBAL posix.system was not an allowed global by default.", and
        # "Unsupported class posix.system" from torch 2.1.
        named = re.search(r"(?:GLOBAL|Unsupported class) ([\w.]+)", text)
        if named is not None or _is_bare_pickle(path):
            example = f", for example {named[1]}" if named else ""
            return (
                f"{path} was not loaded: it holds more than tensors and plain data{example}, and "
                "could run a program when it is loaded."
            )
    reason = text.split(". ")[0].rstrip(".") or type(error).__name__
    return f"{path} is damaged or no checkpoint ({reason})."


def _is_bare_pickle(path: str | Path) -> bool:
    """Tell whether a file is a pickle that PyTorch has not written, which may hold anything."""
    with open(path, "rb") as file:
        return file.read(1) == pickle.PROTO


def refuse_unsafe(path: str | Path) -> None:
    """Raise ``ValueError`` unless a checkpoint can be loaded without executing anything."""
    read_checkpoint(path, in_place=True)


@contextmanager
def safe_loading() -> Iterator[None]:
    """Let nobody in this process, Lightning and solo-learn included, execute what a file holds."""
    before = {name: os.environ.get(name) for name in (FORCE, OPPOSITE)}
    os.environ[FORCE] = "1"
    os.environ.pop(OPPOSITE, None)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
