"""Runs that go on from a checkpoint: what may differ from its settings, and how that is recorded.

A run that goes on from its own checkpoint is the same run. Any other run that begins with a
checkpoint's state has ``continued_from`` in its configuration, and so in ``args.json``, in its
record and in those of its probes. It has another id than a run that was trained alike from the
beginning.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from solo_margins import checkpoints
from solo_margins.config import setting, write
from solo_margins.losses.checks import require_flag
from solo_margins.same_run import (
    CONTINUED_FROM,
    changes_of_run,
    compared_settings,
    continuation,
    refuse_changes,
)


def note_checkpoint(cfg: DictConfig, complete: Callable[[DictConfig], DictConfig]) -> None:
    """Write into a checked configuration from which other run's checkpoint its run goes on.

    Args:
        cfg: what is changed, before the run gets an id.
        complete: returns a configuration as the model's constructor completes it; such settings
            are in checkpoints.

    Raises:
        ValueError: the checkpoint cannot be read, or was trained with other settings, or nothing
            says with which, and ``resume_with_changes`` is not true.
    """
    cfg.pop(CONTINUED_FROM, None)
    path = setting(cfg, "resume_from_checkpoint")
    if path is None:
        return
    checkpoint = Path(path)
    checkpoints.check_exists(checkpoint, "resume_from_checkpoint=")
    content = checkpoints.read_checkpoint(checkpoint, in_place=True)
    intended = require_flag("resume_with_changes", setting(cfg, "resume_with_changes", False))
    before = checkpoints.settings_in(checkpoint, content)
    if before is not None:
        plain: Any = OmegaConf.to_container(complete(cfg.copy()), resolve=True)
        now = compared_settings(plain)
        if not intended:
            refuse_changes(checkpoint, changes_of_run(before, now))
        entry = continuation(before, now, content.get("global_step", 0))
    elif intended:
        # Only its content identifies it.
        entry = {"sha256": hashlib.sha256(checkpoint.read_bytes()).hexdigest()}
    else:
        raise ValueError(
            f"Nothing says what {checkpoint} was trained with: put the args.json of its run beside "
            "it, or set resume_with_changes=true, which is recorded as another run."
        )
    write(cfg, CONTINUED_FROM, entry)
