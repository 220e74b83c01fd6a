"""Hydra plugin: says what to install for a launcher that is not there.

Hydra imports this module in every application of the environment; nothing uses it but
configurations of solo-margins that name such a launcher.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydra.core.utils import JobReturn
from hydra.errors import CompactHydraException
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


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
