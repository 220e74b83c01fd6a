"""Writes files completely or not at all, and reads and appends to files of lines."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

Parsed = TypeVar("Parsed")

# Errors of parsing a line with unexpected content.
UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


@contextlib.contextmanager
def complete_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to, which is renamed to ``path`` at the end.

    If writing fails, nothing is left over and an older file is unchanged.

    Args:
        path: the file; missing folders are created.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays last: matplotlib chooses the format by it.
    unfinished = path.with_name(f".{os.getpid()}.partial{path.suffix}")
    try:
        yield unfinished
        put_in_place(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def output_path(text: str, endings: Sequence[str]) -> Path:
    """Return the path of an output file, or raise ``ValueError`` if it cannot be one.

    Args:
        text: the path from the user.
        endings: the allowed suffixes, with their dots.
    """
    path = Path(text)
    if path.suffix.lower() not in endings:
        listed = ", ".join(endings[:-1]) + " or " + endings[-1]
        raise ValueError(f"output must be a file that ends with {listed}, got {text!r}.")
    if path.is_dir():
        raise ValueError(f"output must be a file, but {text!r} is a folder.")
    return path


def put_in_place(unfinished: Path, final: Path) -> None:
    """Give a file its final name after its content has reached the disk."""
    with open(unfinished, "rb+") as file:
        os.fsync(file.fileno())
    os.replace(unfinished, final)


def open_for_appending(path: Path) -> int:
    """Return the descriptor of a file to append to; a missing folder or file is created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)


def append_line(path: Path, line: str, sync: bool = False) -> None:
    """Append a line to a file; several processes may do so at the same time.

    A line is written completely or not at all, also when the disk is full, and never continues a
    half-written one.

    Args:
        path: the file; a missing folder or file is created.
        line: the text, without newline.
        sync: wait until the line is on the disk.
    """
    content = line.encode() + b"\n"
    file = open_for_appending(path)
    try:
        with contextlib.suppress(OSError):
            # Some network file systems have no locks; a line is still a single write.
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
    """Return the parsed lines of a file, and a message for each unreadable line.

    Args:
        path: the file; empty lines are ignored.
        parse: parses a line; raises ``ValueError``, ``TypeError`` or the like.

    Raises:
        FileNotFoundError: there is no such file.
    """
    parsed, problems = [], []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            parsed.append(parse(line))
        except UNREADABLE as reason:
            # A complete last line ends with a newline: the last part is empty.
            state = "half-written" if number == len(lines) else f"unreadable ({reason})"
            problems.append(f"{path}: line {number} is {state} and left out.")
    return parsed, problems
