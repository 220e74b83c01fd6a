"""Completes configurations of ours in solo-learn's own programs, by a callback of Hydra."""

import sys
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from solo_margins.cli import SetupError, exit_with, run_cli, user_errors, wants_traces

NO_MULTIRUN = """solo-learn's own program cannot run a multirun of this configuration: use the \
program of the same name in solo-margins."""


def _checked(cfg: DictConfig) -> DictConfig:
    with user_errors():
        # A fork of solo-learn may not fit.
        from solo_margins.training.checked_config import checked
    return checked(cfg)


class CompleteConfiguration(Callback):
    """Checks and completes a configuration before a program of solo-learn's gets it.

    A run that fails there ends with one sentence, too. Our own programs, which have not loaded
    solo-learn yet, do all that themselves, and others may only compose the configuration.
    """

    _has_completed = False

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Complete the configuration, or end the program with one sentence."""
        if "solo" not in sys.modules:
            return
        settings = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
        completed = run_cli(_checked, settings)
        with read_write(config), open_dict(config):
            for key in completed:
                config[key] = completed[key]
            for key in settings:
                if key not in completed:
                    del config[key]
            config.replace_loaders = True
        self._has_completed = True

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """End the program with one sentence where the run failed for a reason that has one."""
        if not self._has_completed or job_return.status is not JobStatus.FAILED or wants_traces():
            return
        from solo_margins.training.error_messages import explanation

        # The public return_value of a failed job raises its error.
        error = explanation(job_return._return_value)
        if error is not None:
            exit_with(error)

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Refuse a multirun: Hydra has no hook that could complete the settings of its jobs."""
        if "solo" in sys.modules and "solo_margins.training" not in sys.modules:
            exit_with(SetupError(NO_MULTIRUN))
