"""One sentence for what ends a run: broken images, full disks, numbers that are not finite."""

import errno
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from solo_margins.checkpoints import newest_checkpoint, reason_of
from solo_margins.cli import SetupError, TrainingStopped
from solo_margins.data.class_folders import UnreadableImage
from solo_margins.data.datamodule import RunData
from solo_margins.same_run import OtherRun
from solo_margins.training.checkpointing import Run

# What the system says of a disk that takes no more.
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


@contextmanager
def run_errors(trainer: Any, data: RunData, run: Run) -> Iterator[None]:
    """Turn what broken images, numbers and disks raise during a run into one sentence."""
    try:
        yield
    except Exception as error:
        explained = explanation(error, run.folder, data)
        if explained is None:
            raise
        if not isinstance(explained, TrainingStopped):
            _end_helpers(trainer)
        if explained is error:
            raise
        raise explained from error


def explanation(
    error: Exception, folder: Path | None = None, data: RunData | None = None
) -> SetupError | None:
    """Return an error of one sentence for what has ended a run, None where there is none.

    Args:
        error: what was raised.
        folder: of the run.
        data: of the run.
    """
    if isinstance(error, SetupError):
        return error
    if isinstance(error, (UnreadableImage, OtherRun)):
        return SetupError(str(error))
    if not isinstance(error, (OSError, RuntimeError)):
        return None
    if re.search("Connection (closed|reset) by peer", str(error)):
        return SetupError("Another rank exited; see its output.")
    from solo_margins.data import dali

    if dali.is_from_dali(error):
        sentence = dali.explanation(error, [] if data is None else data.files)
        return None if sentence is None else SetupError(sentence)
    return _disk_error(error, folder)


def _disk_error(error: BaseException | None, folder: Path | None) -> SetupError | None:
    """Return an error of one sentence for one that comes from writing, None for any other.

    Where a disk is full, more than one thing fails, one while the other is handled.
    """
    full = None
    while error is not None:
        if isinstance(error, SetupError):
            return error
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            full = error
        error = error.__cause__ or error.__context__
    if full is None:
        return None
    where = f"{full.filename} cannot be written: " if full.filename else ""
    newest = None if folder is None else newest_checkpoint(folder)
    return SetupError(f"{where}{reason_of(full)}. The last good checkpoint is {newest or 'none'}.")


def _end_helpers(trainer: Any) -> None:
    """End the ranks that this process has started: they wait for a step that will never come."""
    kill = getattr(getattr(trainer.strategy, "launcher", None), "kill", None)
    if trainer.world_size > 1 and trainer.is_global_zero and kill is not None:
        kill(signal.SIGKILL)
