"""A run resumes from one that differs in seed, augmentations or settings of the method, and
overwrites it. It resumes from any of a run's checkpoints, not from the newest one. A broken file
of another run ends it.
"""

from __future__ import annotations

import json
import os
import warnings
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from solo_margins.host.changes import Extend, Replace
from solo_margins.host.checkpoint_files import PREVIOUS, newest_readable

SHOULD_MATCH = (
    "name",
    "backbone",
    "method",
    "method_kwargs",
    "momentum",
    "seed",
    "data.dataset",
    "data.train_path",
    "data.fraction",
    "augmentations",
    "max_epochs",
    "optimizer",
    "scheduler",
    "wandb.project",
    "wandb.entity",
    "pretrained_feature_extractor",
)
"""Settings that make two runs the same run."""


def find_checkpoint(self: Any, cfg: DictConfig) -> tuple[Path | None, str | None]:
    """Return the newest checkpoint of this very run and its W&B id, or (None, None).

    Two runs are the same when all settings in ``SHOULD_MATCH`` agree: method and its settings,
    seed, data, augmentations, optimizer and schedule among them.
    """
    oldest = datetime.now() - _as_timedelta(self.max_hours)
    found: list[tuple[datetime, Path]] = []
    for folder, _, files in os.walk(self.checkpoint_dir):
        candidates = [Path(folder, f) for f in files if f.endswith((".ckpt", PREVIOUS))]
        if not candidates or "args.json" not in files:
            continue
        written = datetime.fromtimestamp(max(map(os.path.getmtime, candidates)))
        if written > oldest:
            found.append((written, Path(folder)))
    for _, run in sorted(found, reverse=True):
        try:
            other = OmegaConf.create(json.loads((run / "args.json").read_text()))
        except (OSError, ValueError):
            warnings.warn(
                f"Skipped {run} for auto-resume: its args.json cannot be read.",
                stacklevel=2,
            )
            continue
        if all(_plain(other, key) == _plain(cfg, key) for key in type(self).SHOULD_MATCH):
            checkpoint = newest_readable(run)
            if checkpoint is not None:
                return checkpoint, OmegaConf.select(other, "wandb_run_id")
    return None, None


def _as_timedelta(hours: Any) -> timedelta:
    return hours if isinstance(hours, timedelta) else timedelta(hours=hours)


def _plain(cfg: Any, key: str) -> Any:
    """Return a setting as plain data, so that it compares by value after a trip through JSON."""
    value = OmegaConf.select(cfg, key, default=None)
    if OmegaConf.is_config(value):
        value = OmegaConf.to_container(value, resolve=True)
    value = json.loads(json.dumps(value, default=str))
    return None if value in ({}, [], "None") else value


CHANGES = (
    Extend("utils.auto_resumer", "AutoResumer.SHOULD_MATCH", SHOULD_MATCH),
    Replace("utils.auto_resumer", "AutoResumer.find_checkpoint", find_checkpoint),
)
