"""Files and folders that are written completely or not at all, files of lines, cached images."""

import contextlib
import errno
import fcntl
import os
import platform
import shutil
import tempfile
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


@contextlib.contextmanager
def complete_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder to write to, which is renamed to ``path`` at the end.

    The folder is whole or absent. If another process was faster, its folder stays.

    Args:
        path: the folder; missing parents are created.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        yield unfinished
        unfinished.chmod(0o755)
        unfinished.rename(path)
    except OSError:
        if not path.is_dir():
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def cache_dir() -> Path:
    """Return where generated data is kept: ``SOLO_MARGINS_CACHE``, or the user's cache folder."""
    chosen = os.environ.get("SOLO_MARGINS_CACHE")
    if chosen:
        return Path(chosen).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "solo-margins"


def digits_folder(split: str) -> str:
    """Return the folder of scikit-learn's 1,797 handwritten digits, which is made on first use.

    It holds grey images of 8×8 pixels, ``<digit>/<number>.png``.

    Raises:
        ValueError: the split is neither ``train`` nor ``val``.
    """
    if split not in ("train", "val"):
        raise ValueError(f"the digits have the splits train and val, got {split!r}")
    folder = cache_dir() / "digits-v1"
    if not folder.is_dir():
        with complete_folder(folder) as unfinished:
            _write_digits(unfinished)
    return str(folder / split)


def _write_digits(folder: Path) -> None:
    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    for label in range(10):
        # Every fifth image validates: 1,433 train, 364 val, the classes balanced in both.
        for place, number in enumerate(np.flatnonzero(digits.target == label)):
            target = folder / ("train" if place % 5 else "val") / str(label)
            target.mkdir(parents=True, exist_ok=True)
            grey = np.rint(digits.images[number] * (255 / 16)).astype(np.uint8)
            Image.fromarray(grey).save(target / f"{number:04d}.png")


def free_memory() -> int | None:
    """Return the bytes of memory that can be used, None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024 * int(next(line for line in lines if "MemAvailable" in line).split()[1])
    except (OSError, StopIteration):
        return None


def require_memory(needed: float, what: str, advice: str) -> None:
    """Raise ``ValueError`` with one sentence where something would not fit into memory."""
    free = free_memory()
    if free is not None and needed > free:
        raise ValueError(
            f"{what} need {needed / 1e9:.1f} GB, but {free / 1e9:.1f} GB of memory are free: "
            f"{advice}."
        )


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


@contextlib.contextmanager
def locked(path: Path) -> Iterator[int]:
    """Yield the descriptor of a file to append to, which no other process has at the same time.

    Some network file systems have no locks: there others may have it.
    """
    file = open_for_appending(path)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)


@contextlib.contextmanager
def held_alone(path: Path) -> Iterator[str | None]:
    """Hold a lock for as long as the block runs; nobody waits for it.

    The system frees it when a process ends, however it ends. Processes that are forked do not
    have it. Some network file systems have no locks: there every process holds it.

    Args:
        path: the file of the lock, which is there for as long as it is held.

    Yields:
        None where the lock is held now, or else which process holds it.
    """
    while True:
        file = open_for_appending(path)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                holder = os.pread(file, 200, 0).decode(errors="replace")
                os.close(file)
                yield holder or "an unknown one"
                return
        if _is_open_as(file, path):
            break
        # Whoever held it has removed it since this process opened it.
        os.close(file)
    try:
        # A disk may be full.
        with contextlib.suppress(OSError):
            os.ftruncate(file, 0)
            os.write(file, f"process {os.getpid()} on {platform.node()}".encode())
        yield None
    finally:
        # The disk may have become read-only; what counts is the lock, not the file.
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(file)


def _is_open_as(file: int, path: Path) -> bool:
    """Tell whether a descriptor is that of the file which has a path now."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


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
    with locked(path) as file:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            content = b"\n" + content
        if os.write(file, content) < len(content):
            os.ftruncate(file, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        if sync:
            os.fsync(file)


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
