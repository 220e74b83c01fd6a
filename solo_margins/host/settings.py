"""Accelerator, strategy and devices that Lightning 2 accepts and solo-learn counts rightly."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf


def complete_trainer_settings(cfg: DictConfig) -> DictConfig:
    """Return the configuration with a strategy and devices that Lightning 2 accepts.

    Without a strategy Lightning chooses one. Learning rates are scaled by ``len(cfg.devices)``, so
    GPUs are written as a list. On the CPU Lightning wants a number of processes: ``"1"``, or for n
    processes a decimal padded to n digits, satisfies both.
    """
    if OmegaConf.select(cfg, "strategy", default=None) in (None, "None"):
        cfg.strategy = "auto"
    accelerator = OmegaConf.select(cfg, "accelerator", default=None) or "auto"
    cfg.accelerator = chosen_accelerator() if accelerator == "auto" else accelerator
    devices = OmegaConf.select(cfg, "devices", default=None)
    if cfg.accelerator == "cpu":
        processes = _count(devices)
        cfg.devices = str(processes).zfill(processes)
    else:
        cfg.devices = _listed(devices)
    return cfg


def chosen_accelerator() -> str:
    """Return what ``accelerator=auto`` means on this machine: ``"gpu"`` or ``"cpu"``."""
    import torch

    has_gpu = torch.cuda.is_available() or torch.backends.mps.is_available()
    return "gpu" if has_gpu else "cpu"


def _count(devices: Any) -> int:
    if isinstance(devices, ListConfig | list):
        return len(devices)
    is_number = isinstance(devices, int) or (isinstance(devices, str) and devices.isdecimal())
    return max(1, int(devices)) if is_number else 1


def _listed(devices: Any) -> Any:
    """Return GPUs as the list of their numbers; a list stays as it is."""
    import torch

    if devices is None:
        return [0]
    if str(devices) in ("-1", "auto"):
        return list(range(max(1, torch.cuda.device_count())))
    if isinstance(devices, str) and "," in devices:
        return [int(number) for number in devices.split(",") if number.strip()]
    if isinstance(devices, int) or (isinstance(devices, str) and devices.isdecimal()):
        return list(range(max(1, int(devices))))
    return devices
