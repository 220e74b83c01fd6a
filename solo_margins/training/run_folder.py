"""One run, one folder: its name, and whether it continues an earlier run."""

import os
import re
import secrets
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from solo_margins.checkpoints import (
    fault_of,
    find_same_run,
    newest_checkpoint,
    newest_first,
    refuse_unsafe,
)
from solo_margins.cli import is_helper_process
from solo_margins.config import setting

# Tells the other ranks of a run the name that the first one chose.
RUN_ID_VARIABLE = "SOLO_MARGINS_RUN_ID"


@dataclass(frozen=True)
class Run:
    """A run's folder and the checkpoint it continues from, if any."""

    folder: Path
    resumed_from: Path | None = None

    @property
    def name(self) -> str:
        """The run's id, which is the name of its folder."""
        return self.folder.name


@dataclass(frozen=True)
class RunResult:
    """What a run leaves behind."""

    # The run's folder: checkpoints, args.json and logs/.
    folder: Path
    # The last checkpoint, or None if none was saved.
    checkpoint: Path | None
    # The last value of every metric that was logged.
    metrics: dict[str, float] = field(default_factory=dict)
    # The checkpoint that the run was continued from, if any.
    resumed_from: Path | None = None
    # The results file said that it was finished: nothing was run now.
    is_skipped: bool = False


def kind_of(cfg: DictConfig) -> str:
    """Return the folder of ``checkpoint.dir`` that such runs are in, as solo-learn has it."""
    return "linear" if "pretrained_feature_extractor" in cfg else str(cfg.method)


def fresh_name() -> str:
    """Return a name for a run that has none."""
    return f"run-{secrets.token_hex(4)}"


def choose_run(cfg: DictConfig) -> Run:
    """Return the run of a parsed configuration and write its id into ``cfg.run_id``.

    Auto-resume continues the newest run of the very same settings in its own folder. An explicit
    ``resume_from_checkpoint`` starts a new folder, unless ``run_id`` names the old one. A folder
    that holds another run is never written to.

    Args:
        cfg: the configuration, as completed by the model's constructor.
    """
    runs = Path(cfg.checkpoint.dir) / kind_of(cfg)
    name = _chosen_name(cfg)
    resumed = _explicit_checkpoint(cfg)
    if resumed is None and cfg.auto_resume.enabled:
        resumed, _ = find_same_run(
            runs / name if name else runs, cfg, timedelta(hours=cfg.auto_resume.max_hours)
        )
        if resumed is not None:
            refuse_unsafe(resumed)
            name, runs = resumed.parent.name, resumed.parent.parent
    run = Run(runs / (name or fresh_name()), resumed)
    earlier = newest_checkpoint(run.folder)
    continues = resumed is not None and resumed.parent.resolve() == run.folder.resolve()
    # Unreadable checkpoints are ignored; auto-resume has warned of them.
    is_lost = cfg.auto_resume.enabled and all(map(fault_of, newest_first(run.folder)))
    if earlier is not None and not continues and not is_lost and not is_helper_process():
        raise ValueError(
            f"run_id={run.name}: {run.folder} already holds a run"
            + (" with other settings" if cfg.auto_resume.enabled else "")
            + "; choose another run_id, or continue that run with the same settings and "
            "auto_resume.enabled=true."
        )
    cfg.run_id = run.name
    if not is_helper_process():
        os.environ[RUN_ID_VARIABLE] = run.name
    return run


def _chosen_name(cfg: DictConfig) -> str | None:
    shared = os.environ.get(RUN_ID_VARIABLE)
    if shared and is_helper_process():
        return shared
    return checked_name(setting(cfg, "run_id"))


def checked_name(name: Any) -> str | None:
    """Return a ``run_id`` as the name of a folder, None where there is none."""
    if name is None:
        return None
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", str(name)):
        raise ValueError(
            f"run_id names a folder: letters, digits and _ . - are allowed, got {str(name)!r}."
        )
    return str(name)


def _explicit_checkpoint(cfg: DictConfig) -> Path | None:
    path = setting(cfg, "resume_from_checkpoint")
    if path is None:
        return None
    if not Path(path).exists():
        raise ValueError(f"resume_from_checkpoint={path} does not exist.")
    refuse_unsafe(path)
    fault = fault_of(Path(path))
    if fault is not None:
        raise ValueError(f"{path} is damaged or not a checkpoint ({fault}).")
    return Path(path)
