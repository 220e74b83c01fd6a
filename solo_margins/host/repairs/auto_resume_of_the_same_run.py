"""A run resumes from one that differs in seed, augmentations or settings of the method, and
overwrites it. It resumes from any of a run's checkpoints, not from the newest one. A broken file
of another run ends it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from solo_margins.checkpoints import find_same_run
from solo_margins.host.changes import Replace


def find_checkpoint(self: Any, cfg: DictConfig) -> tuple[Path | None, str | None]:
    """Return the newest checkpoint of this very run and its W&B id, or (None, None)."""
    return find_same_run(self.checkpoint_dir, cfg, self.max_hours)


CHANGES = (Replace("utils.auto_resumer", "AutoResumer.find_checkpoint", find_checkpoint),)
