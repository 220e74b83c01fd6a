"""Folders that are being written: which process does it, and removing those of dead processes."""

import contextlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

# File in an unfinished folder that says which process writes it.
WRITER = "writer.json"
# A process that cannot be looked up, such as one on another machine, is dead if it has written
# nothing for so long. Decoding takes minutes and writes all the time.
SECONDS_WITHOUT_WRITING = 7 * 24 * 3600


def sign(folder: Path) -> None:
    """Write down in an unfinished folder that this process writes it."""
    (folder / WRITER).write_text(json.dumps(_this_process()))


def remove_signature(folder: Path) -> None:
    """Remove what :func:`sign` wrote, before the folder gets its final name."""
    (folder / WRITER).unlink()


def remove_abandoned(parent: Path) -> None:
    """Remove the unfinished folders in ``parent`` whose processes are dead.

    Unfinished folders are the hidden ones. On the same machine since it was started, and in the
    same container, a process is looked up. Otherwise the age of the newest file decides.
    """
    # A cache that is absent or read-only stays as it is.
    with contextlib.suppress(OSError):
        for folder in parent.glob(".*"):
            if folder.is_dir() and _is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    try:
        writer = json.loads((folder / WRITER).read_text())
    except (OSError, ValueError):
        # Killed before it was signed, or finished a moment ago.
        writer = None
    here = _this_process()
    can_be_looked_up = (
        writer is not None
        and here is not None
        and (writer["boot"], writer["namespace"]) == (here["boot"], here["namespace"])
    )
    if can_be_looked_up:
        return _started(writer["pid"]) != writer["started"]
    return _seconds_without_writing(folder) > SECONDS_WITHOUT_WRITING


def _seconds_without_writing(folder: Path) -> float:
    # The clock of the file system, which the machines that share it may not agree with.
    with tempfile.TemporaryFile(dir=folder.parent) as file:
        now = os.fstat(file.fileno()).st_mtime
    newest = max(path.stat().st_mtime for path in (folder, *folder.rglob("*")))
    return now - newest


def _this_process() -> dict[str, Any] | None:
    """Return what tells this process from all others, None where the system does not say."""
    pid = os.getpid()
    try:
        if os.readlink("/proc/self") != str(pid):
            # The numbers in /proc are those of another container.
            return None
        return {
            "boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            # Containers on one machine number their processes separately.
            "namespace": os.readlink("/proc/self/ns/pid"),
            "pid": pid,
            "started": _started(pid),
        }
    except OSError:
        return None


def _started(pid: int) -> str | None:
    """Return when a process was started, by the system's clock; None where it has ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name of the program, in brackets, may hold spaces.
    fields = state.rpartition(")")[2].split()
    has_ended = fields[0] in ("Z", "X")
    return None if has_ended else fields[19]
