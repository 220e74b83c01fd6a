"""Files that are written completely or not at all, and files of lines that survive a crash."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

Parsed = TypeVar("Parsed")

UNREADABLE = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
"""What parsing a line of unexpected content may raise."""


@contextlib.contextmanager
def complete_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to, which is renamed to ``path`` at the end.

    Where writing fails nothing is left behind, and an older file stays as it is.

    Args:
        path: of the file; missing folders above it are made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays last: it tells matplotlib which kind of picture to write.
    unfinished = path.with_name(f".{os.getpid()}.partial{path.suffix}")
    try:
        yield unfinished
        put_in_place(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


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


def put_in_place(unfinished: Path, final: Path) -> None:
    """Give a file its final name once its content is on the disk, not in memory only."""
    with open(unfinished, "rb+") as file:
        os.fsync(file.fileno())
    os.replace(unfinished, final)


def open_for_appending(path: Path) -> int:
    """Return the descriptor of a file to append to; folder and file are made where missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)


def append_line(path: Path, line: str, sync: bool = False) -> None:
    """Add a line to a file, which several processes may do at the same time.

    A line is there as a whole or not at all, also when the disk is full, and does not continue one
    that another program has left half-written.

    Args:
        path: of the file; folder and file are made where they are missing.
        line: without its end.
        sync: wait until the line is on the disk.
    """
    content = line.encode() + b"\n"
    file = open_for_appending(path)
    try:
        with contextlib.suppress(OSError):
            # Some network file systems have no locks; a line is still one write.
            fcntl.flock(file, fcntl.LOCK_EX)
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            content = b"\n" + content
        if os.write(file, content) < len(content):
            os.ftruncate(file, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        if sync:
            os.fsync(file)
    finally:
        os.close(file)


def read_lines(path: Path, parse: Callable[[bytes], Parsed]) -> tuple[list[Parsed], list[str]]:
    """Return what could be read of a file, and a sentence for each line that could not.

    Args:
        path: of the file; empty lines are ignored.
        parse: a line to what it means; fails with ``ValueError``, ``TypeError`` or the like.

    Raises:
        FileNotFoundError: there is no such file.
    """
    found, problems = [], []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found.append(parse(line))
        except UNREADABLE as reason:
            # A complete line ends with a newline, so that the last part is empty.
            state = "half-written" if number == len(lines) else f"unreadable ({reason})"
            problems.append(f"{path}: line {number} is {state} and left out.")
    return found, problems
