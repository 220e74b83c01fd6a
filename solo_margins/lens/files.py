"""Files that are complete or not there, and packages that only the lens needs."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def complete_file(path: Path) -> Iterator[Path]:
    """Give a temporary name to write to; the file appears under its own name at the end.

    Where writing fails nothing is left behind, and an older file stays as it is.

    Args:
        path: of the file; missing folders above it are made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # The ending stays last: it says to matplotlib which kind of picture to write.
    partial = path.with_name(f".{os.getpid()}.partial{path.suffix}")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def output_path(text: str, endings: Sequence[str]) -> Path:
    """Return where to write to, or raise ``ValueError`` with a sentence.

    Args:
        text: the path that the user gave.
        endings: those that can be written, with their dots.
    """
    path = Path(text)
    if path.suffix.lower() not in endings:
        listed = ", ".join(endings[:-1]) + " or " + endings[-1]
        raise ValueError(f"output must be a file that ends with {listed}, got {text!r}.")
    if path.is_dir():
        raise ValueError(f"output must be a file, but {text!r} is a folder.")
    return path


def lens_package(name: str) -> Any:
    """Return a module of the extra ``lens``, or raise ``ImportError`` that says how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        # Without a module's name this is a sentence for the user, not a defect of the program.
        raise ImportError(
            f"This needs {package}, which is not installed: run `pip install {package}`, or "
            '`pip install ".[lens]"` in the folder of solo-margins.'
        ) from None
