"""Completes configurations of ours in solo-learn's own programs, by a callback of Hydra."""

from __future__ import annotations

import sys
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf, open_dict, read_write


class CompleteConfiguration(Callback):
    """Checks and completes a configuration before a program of solo-learn's gets it.

    Our own programs, which have not loaded solo-learn yet, do that themselves, and others may only
    compose it.
    """

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Complete the configuration, or end the program with one sentence."""
        if "solo" not in sys.modules:
            return
        from solo_margins.training import run_cli
        from solo_margins.training.checked_config import checked

        settings = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
        completed = run_cli(checked, settings)
        with read_write(config), open_dict(config):
            for key in completed:
                config[key] = completed[key]

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Refuse a multirun: Hydra has no hook that could complete the settings of its jobs."""
        if "solo" in sys.modules and "solo_margins.training" not in sys.modules:
            print(
                "Error: solo-learn's own program cannot run a multirun of this configuration: use "
                "the program of the same name in solo-margins.",
                file=sys.stderr,
            )
            raise SystemExit(1)
