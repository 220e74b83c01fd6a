"""Checkpoint callback and auto-resume with the repository form's contract."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from solo_margins.host import own_settings
from solo_margins.host.lightning import pl
from solo_margins.host.repairs import auto_resume_of_the_same_run as auto_resume
from solo_margins.host.repairs import checkpoints_of_their_own as checkpointing
from solo_margins.host.solo_1_0_2.config import SHARED_DEFAULTS, set_defaults


class Checkpointer(pl.Callback):
    """Saves a checkpoint and the configuration in a folder of the run's own.

    Args:
        cfg: configuration with a ``name``.
        logdir: folder of the runs.
        frequency: epochs between checkpoints.
        keep_prev: keep earlier checkpoints.
    """

    initial_setup = checkpointing.initial_setup
    save_args = checkpointing.save_args
    save = checkpointing.save
    on_train_epoch_end = checkpointing.on_train_epoch_end  # type: ignore[assignment]
    on_train_end = checkpointing.on_train_end

    def run_name(self, trainer: Any) -> str:
        """Return the name of the run's folder."""
        return own_settings.run_name(checkpointing.run_name, self, trainer)

    def __init__(
        self,
        cfg: DictConfig,
        logdir: str | Path = Path("trained_models"),
        frequency: int = 1,
        keep_prev: bool = False,
    ) -> None:
        super().__init__()
        self.cfg = cfg
        self.logdir = Path(logdir)
        self.frequency = frequency
        self.keep_prev = keep_prev

    @staticmethod
    def add_and_assert_specific_cfg(cfg: DictConfig) -> DictConfig:
        """Return the configuration with the defaults for checkpoints filled in."""
        return set_defaults(cfg, _defaults("checkpoint."))

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Create the run's folder and write the configuration there."""
        self.initial_setup(trainer)
        self.save_args(trainer)


class AutoResumer:
    """Finds the newest checkpoint of this very run.

    Args:
        checkpoint_dir: folder of the runs.
        max_hours: age from which on a checkpoint is not considered.
    """

    SHOULD_MATCH = [*auto_resume.SHOULD_MATCH, *own_settings.SHOULD_MATCH_TOO]  # noqa: RUF012

    find_checkpoint = auto_resume.find_checkpoint

    def __init__(
        self, checkpoint_dir: str | Path = Path("trained_models"), max_hours: int = 36
    ) -> None:
        self.checkpoint_dir = checkpoint_dir
        self.max_hours = timedelta(hours=max_hours)

    @staticmethod
    def add_and_assert_specific_cfg(cfg: DictConfig) -> DictConfig:
        """Return the configuration with the defaults for auto-resume filled in."""
        return set_defaults(cfg, _defaults("auto_resume."))


def _defaults(prefix: str) -> dict[str, Any]:
    return {key: value for key, value in SHARED_DEFAULTS.items() if key.startswith(prefix)}
