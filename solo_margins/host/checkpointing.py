"""Writing checkpoints on every rank, and finding the one that belongs to this very run."""

from __future__ import annotations

import json
import os
import secrets
import warnings
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

SHOULD_MATCH = (
    "name",
    "backbone",
    "method",
    "method_kwargs",
    "momentum",
    "protocol",
    "seed",
    "data.dataset",
    "data.train_path",
    "data.fraction",
    "data.unlabelled_folder",
    "augmentations",
    "max_epochs",
    "optimizer",
    "scheduler",
    "wandb.project",
    "wandb.entity",
    "pretrained_feature_extractor",
    "result_id",  # of runs that go into a results file: every setting that defines them
)
"""Settings that make two runs the same run."""


def _wandb_version(trainer: Any) -> str | None:
    for logger in trainer.loggers:
        if type(logger).__name__ == "WandbLogger":
            return str(logger.version)
    return None


def initial_setup(self: Any, trainer: Any) -> None:
    """Choose a folder of its own for the run, the same on every rank, and create it.

    ``cfg.run_id`` names the folder; without it, a W&B run's id does. The version of any other
    logger counts from 0 in that logger's own folder, so it would name the same folder for different
    runs.
    """
    self.wandb_run_id = _wandb_version(trainer)
    chosen = OmegaConf.select(self.cfg, "run_id", default=None) or self.wandb_run_id
    version = trainer.strategy.broadcast(str(chosen or f"offline-{secrets.token_hex(4)}"))
    self.path = self.logdir / version
    # No "=": a path with one must be quoted twice on Hydra's command line.
    self.ckpt_placeholder = f"{self.cfg.name}-{version}-ep{{}}.ckpt"
    # A run that goes on in its folder replaces the checkpoint that it started from.
    resumed = Path(trainer.ckpt_path) if trainer.ckpt_path else None
    is_own = resumed is not None and resumed.parent.resolve() == self.path.resolve()
    self.last_ckpt = self.path / resumed.name if resumed is not None and is_own else None
    if trainer.is_global_zero:
        os.makedirs(self.path, exist_ok=True)


def save_args(self: Any, trainer: Any) -> None:
    """Write the configuration beside the checkpoints, as ``args.json``."""
    if trainer.is_global_zero:
        # Resolved, so that the file means the same in another process.
        args: Any = OmegaConf.to_container(self.cfg, resolve=True)
        args["wandb_run_id"] = getattr(self, "wandb_run_id", None)
        text = json.dumps(args, default=lambda _: "<not serializable>")
        (self.path / "args.json").write_text(text)


def save(self: Any, trainer: Any, suffix: str = "") -> None:
    """Write a checkpoint and remove the previous one; to be called on every rank.

    Collecting the state is a collective operation: calling it on rank 0 alone waits for ever.
    Whoever looks into the folder meanwhile finds whole checkpoints only.
    """
    if trainer.sanity_checking:
        return
    ckpt = self.path / self.ckpt_placeholder.format(f"{trainer.current_epoch}{suffix}")
    unfinished = ckpt.with_suffix(".partial")
    trainer.save_checkpoint(unfinished, weights_only=False)
    if trainer.is_global_zero:
        os.replace(unfinished, ckpt)
    if trainer.is_global_zero and self.last_ckpt not in (None, ckpt) and not self.keep_prev:
        Path(self.last_ckpt).unlink(missing_ok=True)
    self.last_ckpt = ckpt


def on_train_epoch_end(self: Any, trainer: Any, pl_module: Any) -> None:
    """Save every ``frequency`` epochs, and after the last one."""
    epoch = trainer.current_epoch
    is_last = trainer.should_stop or epoch + 1 == trainer.max_epochs
    is_last = is_last or 0 < trainer.max_steps <= trainer.global_step
    if epoch % self.frequency == 0 or is_last:
        self.save(trainer)


def find_checkpoint(self: Any, cfg: DictConfig) -> tuple[Path | None, str | None]:
    """Return the newest checkpoint of this very run and its W&B id, or (None, None).

    Two runs are the same when all settings in ``SHOULD_MATCH`` agree: method and margins, seed,
    data, augmentations, optimizer and schedule among them.
    """
    oldest = datetime.now() - _as_timedelta(self.max_hours)
    found: list[tuple[datetime, Path]] = []
    for folder, _, files in os.walk(self.checkpoint_dir):
        candidates = [Path(folder, file) for file in files if file.endswith(".ckpt")]
        if not candidates or "args.json" not in files:
            continue
        # Clocks are coarse: of two files written at once, the later epoch counts.
        newest = max(candidates, key=lambda c: (os.path.getmtime(c), len(c.name), c.name))
        written = datetime.fromtimestamp(os.path.getmtime(newest))
        if written > oldest:
            found.append((written, newest))
    for _, checkpoint in sorted(found, reverse=True):
        try:
            other = OmegaConf.create(json.loads((checkpoint.parent / "args.json").read_text()))
        except (OSError, ValueError):
            warnings.warn(
                f"Skipped {checkpoint} for auto-resume: its args.json cannot be read.",
                stacklevel=2,
            )
            continue
        if all(_plain(other, key) == _plain(cfg, key) for key in type(self).SHOULD_MATCH):
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
