"""Hydra plugin: says what to install for a launcher that is not there.

Hydra imports this module in every application of the environment; nothing uses it but
configurations of solo-margins that name such a launcher.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.errors import CompactHydraException
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

# Launchers of Hydra's own packages, and the extra of solo-margins that brings them.
LAUNCHERS = {"joblib": "sweep", "submitit_slurm": "slurm", "submitit_local": "slurm", "ray": "ray"}


def explain_missing() -> None:
    """Let a launcher that is not installed answer with what to install."""
    for launcher, extra in LAUNCHERS.items():
        package = f"hydra-{launcher.partition('_')[0]}-launcher"
        if importlib.util.find_spec(f"hydra_plugins.{package.replace('-', '_')}") is None:
            node = {
                "_target_": "hydra_plugins.solo_margins_launchers.MissingLauncher",
                "sentence": f"The launcher {launcher} needs {package}, which is not installed: run "
                f'`pip install {package}`, or `pip install ".[{extra}]"` in solo-margins\' folder.',
            }
            ConfigStore.instance().store(launcher, node, "hydra/launcher", provider="solo-margins")


class MissingLauncher(Launcher):
    """Stands for a launcher whose package is not installed.

    Args:
        sentence: what to tell the user.
        settings: what the launcher itself would have been told.
    """

    def __init__(self, sentence: str, **settings: Any) -> None:
        self.sentence = sentence

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Refuse, before anything is run."""
        raise CompactHydraException(self.sentence)

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Never called: the set-up refuses."""
        raise NotImplementedError
