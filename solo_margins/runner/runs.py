"""One run, one folder: its name, and whether it continues an earlier one."""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from omegaconf import DictConfig

from solo_margins import host
from solo_margins.host.checkpoint_files import fault_of, newest_first
from solo_margins.runner.program import is_helper_process
from solo_margins.runner.settings import setting
from solo_margins.safe_loading import refuse_unsafe

RUN_ID_VARIABLE = "SOLO_MARGINS_RUN_ID"
"""Tells processes that train together the name that the first one chose."""


@dataclass(frozen=True)
class Run:
    """A run's folder and the checkpoint it continues from, if any."""

    folder: Path
    resumed_from: Path | None = None

    @property
    def name(self) -> str:
        """The run's id, which is the name of its folder."""
        return self.folder.name

    def newest_checkpoint(self) -> Path | None:
        """Return the checkpoint that was written last, if there is one."""
        return newest_checkpoint(self.folder)


@dataclass(frozen=True)
class RunResult:
    """What a run leaves behind."""

    folder: Path
    """The run's folder: checkpoints, ``args.json`` and ``logs/``."""
    checkpoint: Path | None
    """The last checkpoint, or None if none was saved."""
    metrics: dict[str, float] = field(default_factory=dict)
    """The last value of every metric that was logged."""
    resumed_from: Path | None = None
    """The checkpoint that the run was continued from, if any."""
    is_skipped: bool = False
    """The results file said that it was finished: nothing was run now."""


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint in a folder that was written last, if there is one."""
    return max(folder.glob("*.ckpt"), key=os.path.getmtime, default=None)


def choose_run(cfg: DictConfig, kind: str) -> Run:
    """Return the run of a parsed configuration and write its id into ``cfg.run_id``.

    Auto-resume continues the newest run of the very same settings in its own folder. An explicit
    ``resume_from_checkpoint`` starts a new folder, unless ``run_id`` names the old one. A folder
    that holds another run is never written to.

    Args:
        cfg: the configuration, as completed by the model's constructor.
        kind: the folder of ``checkpoint.dir`` that such runs are in, such as the method's name.
    """
    runs = Path(cfg.checkpoint.dir) / kind
    wanted = _wanted_id(cfg)
    resumed = _explicit_checkpoint(cfg)
    if resumed is None and cfg.auto_resume.enabled:
        resumed = _find(cfg, runs / wanted if wanted else runs)
        if resumed is not None:
            wanted = resumed.parent.name
            runs = resumed.parent.parent
    run = Run(runs / (wanted or f"run-{secrets.token_hex(4)}"), resumed)
    earlier = run.newest_checkpoint()
    continues = resumed is not None and resumed.parent.resolve() == run.folder.resolve()
    # What nobody can read is in nobody's way; auto-resume has warned of it.
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


def _wanted_id(cfg: DictConfig) -> str | None:
    shared = os.environ.get(RUN_ID_VARIABLE)
    if shared and is_helper_process():
        return shared
    wanted = setting(cfg, "run_id")
    if wanted is None:
        return None
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", str(wanted)):
        raise ValueError(
            f"run_id names a folder: letters, digits and _ . - are allowed, got {str(wanted)!r}."
        )
    return str(wanted)


def _explicit_checkpoint(cfg: DictConfig) -> Path | None:
    given = setting(cfg, "resume_from_checkpoint")
    if given is None:
        return None
    if not Path(given).exists():
        raise ValueError(f"resume_from_checkpoint={given} does not exist.")
    refuse_unsafe(given)
    fault = fault_of(Path(given))
    if fault is not None:
        raise ValueError(f"{given} is damaged or no checkpoint ({fault}).")
    return Path(given)


def _find(cfg: DictConfig, folder: Path) -> Path | None:
    found, _ = host.AutoResumer(folder, max_hours=cfg.auto_resume.max_hours).find_checkpoint(cfg)
    if found is None:
        return None
    refuse_unsafe(found)
    return Path(found)
