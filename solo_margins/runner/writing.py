"""Disks that take nothing, or nothing more: found out early, and told in one sentence."""

from __future__ import annotations

import errno
import tempfile

from omegaconf import DictConfig

from solo_margins.host.checkpoint_files import CheckpointNotWritten, reason_of
from solo_margins.runner.program import SetupError, TrainingStopped, is_helper_process
from solo_margins.runner.runs import Run
from solo_margins.runner.settings import setting

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""What a disk says that takes no more."""


def check_writable(cfg: DictConfig, run: Run) -> None:
    """Fail before the first step, not behind it, where the run's folder cannot be written."""
    writes = cfg.checkpoint.enabled or setting(cfg, "loggers.csv", True)
    if not writes or is_helper_process():
        return
    try:
        run.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=run.folder) as file:
            file.write(b"x")
    except OSError as error:
        raise ValueError(
            f"checkpoint.dir={cfg.checkpoint.dir}: {run.folder} cannot be written: "
            f"{reason_of(error)}."
        ) from error


def explain_full_disk(error: BaseException | None, run: Run) -> SetupError | None:
    """Return an error of one sentence for one that comes from writing, None for any other.

    Where a disk is full, more than one thing fails, one while the other is handled.
    """
    found = None
    while error is not None:
        if isinstance(error, CheckpointNotWritten):
            # All processes were told.
            return TrainingStopped(str(error))
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            found = error
        error = error.__cause__ or error.__context__
    if found is None:
        return None
    where = f"{found.filename} cannot be written: " if found.filename else ""
    return SetupError(
        f"{where}{reason_of(found)}. The last good checkpoint is "
        f"{run.newest_checkpoint() or 'none'}."
    )
