"""Checkpoints as files: whole or not there, and told from broken ones before they are loaded."""

from __future__ import annotations

import contextlib
import logging
import os
import zipfile
from pathlib import Path

from lightning_utilities.core.rank_zero import rank_zero_only

PREVIOUS = ".previous"
"""Ends the name of the checkpoint before the newest, behind ``.ckpt``."""

log = logging.getLogger("solo_margins.checkpoints")


class CheckpointNotWritten(RuntimeError):
    """A checkpoint could not be written; the message is one sentence for the user."""


def discard(unfinished: Path) -> None:
    """Remove what could not be written to its end, if the disk allows that."""
    with contextlib.suppress(OSError):
        unfinished.unlink()


def reason_of(error: Exception) -> str:
    """Return what went wrong, without numbers and names that the sentence has already."""
    text = getattr(error, "strerror", None) or str(error)
    return " ".join(text.split()).rstrip(".")


def fault_of(checkpoint: Path) -> str | None:
    """Return what is wrong with a checkpoint's file, or None where it is whole.

    A checkpoint is a zip archive: its table of contents is at its end, and each part has a
    checksum. Nothing of it is executed.
    """
    try:
        with zipfile.ZipFile(checkpoint) as archive:
            if not any(name.endswith("data.pkl") for name in archive.namelist()):
                return "it is not a checkpoint of PyTorch"
            damaged = archive.testzip()
    except OSError as error:
        return reason_of(error)
    except Exception:
        # zipfile has many words for a file that is not as it was written.
        return f"it is cut off, damaged or no checkpoint ({checkpoint.stat().st_size} bytes)"
    return None if damaged is None else f"its part {damaged} is damaged"


def newest_readable(folder: Path) -> Path | None:
    """Return the newest checkpoint of a run that is whole, and warn of those that are not."""
    for checkpoint in newest_first(folder):
        fault = fault_of(checkpoint)
        if fault is None:
            return checkpoint
        if getattr(rank_zero_only, "rank", 0) == 0:
            log.warning("Skipped the checkpoint %s: %s.", checkpoint, fault)
    return None


def newest_first(folder: Path) -> list[Path]:
    """Return a run's checkpoints, the newest first, those set aside last."""
    kept, aside = (list(folder.glob(pattern)) for pattern in ("*.ckpt", "*.ckpt" + PREVIOUS))
    return [*sorted(kept, key=_age, reverse=True), *sorted(aside, key=_age, reverse=True)]


def _age(path: Path) -> tuple[float, int, str]:
    # Clocks are coarse: of two files written at once, the later epoch counts.
    return os.path.getmtime(path), len(path.name), path.name


def remove_previous(folder: Path) -> None:
    """Remove the checkpoint that was kept aside."""
    for path in folder.glob("*.ckpt" + PREVIOUS):
        path.unlink(missing_ok=True)
