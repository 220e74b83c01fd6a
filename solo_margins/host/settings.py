"""Where Lightning 2 trains: an accelerator, a strategy and devices that it accepts."""

from __future__ import annotations

import torch
from omegaconf import DictConfig, ListConfig, OmegaConf


def runs_on_cpu(cfg: DictConfig) -> bool:
    """Tell whether Lightning trains on a CPU; without an accelerator it takes a GPU if there is."""
    accelerator = OmegaConf.select(cfg, "accelerator", default=None)
    if accelerator in (None, "None", "auto"):
        return not (torch.cuda.is_available() or torch.backends.mps.is_available())
    return bool(accelerator == "cpu")


def complete_trainer_settings(cfg: DictConfig) -> DictConfig:
    """Return the configuration with a strategy and devices that Lightning 2 accepts.

    Without a strategy Lightning chooses one. Learning rates are scaled by ``len(cfg.devices)``
    while Lightning wants a number of processes on the CPU: ``"1"``, or for n processes a decimal
    padded to n digits, satisfies both.
    """
    if OmegaConf.select(cfg, "strategy", default=None) in (None, "None"):
        cfg.strategy = "auto"
    devices = OmegaConf.select(cfg, "devices", default=None)
    if devices is None:
        cfg.devices = "1" if runs_on_cpu(cfg) else [0]
    elif runs_on_cpu(cfg):
        cfg.devices = _cpu_devices(devices)
    elif isinstance(devices, int) and devices > 0:
        cfg.devices = list(range(devices))
    return cfg


def _cpu_devices(devices: object) -> str:
    if isinstance(devices, ListConfig | list):
        processes = len(devices)
    elif isinstance(devices, int):
        processes = max(1, devices)
    elif isinstance(devices, str) and devices.isdecimal():
        processes = max(1, int(devices))
    else:
        processes = 1
    return str(processes).zfill(processes)
