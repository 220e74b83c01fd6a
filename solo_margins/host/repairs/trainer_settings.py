"""Lightning 2 refuses the default strategy None, and a list of devices on the CPU. Eight devices as
a text, `devices: "8"`, scale the learning rate for one. `main_linear.py` ignores `seed`.
"""

from typing import Any

import torch
from lightning.pytorch import seed_everything
from omegaconf import DictConfig, ListConfig, OmegaConf

from solo_margins.host.changes import Wrap


def runs_on_cpu(cfg: DictConfig) -> bool:
    """Tell whether Lightning trains on a CPU; without an accelerator it takes a GPU if there is."""
    accelerator = OmegaConf.select(cfg, "accelerator", default=None)
    if accelerator in (None, "None", "auto"):
        return not (torch.cuda.is_available() or torch.backends.mps.is_available())
    return bool(accelerator == "cpu")


def complete_trainer_settings(cfg: DictConfig) -> DictConfig:
    """Return the configuration with a strategy and devices that Lightning 2 accepts.

    Without a strategy Lightning chooses one. Learning rates are scaled by ``len(cfg.devices)``, so
    GPUs are written as a list. On the CPU Lightning wants a number of processes: ``"1"``, or for n
    processes a decimal padded to n digits, satisfies both.
    """
    if OmegaConf.select(cfg, "strategy", default=None) in (None, "None"):
        cfg.strategy = "auto"
    devices = OmegaConf.select(cfg, "devices", default=None)
    if runs_on_cpu(cfg):
        cfg.accelerator = "cpu"
        processes = _count(devices)
        cfg.devices = str(processes).zfill(processes)
    else:
        if OmegaConf.select(cfg, "accelerator", default=None) in (None, "None", "auto"):
            cfg.accelerator = "gpu"
        cfg.devices = _listed(devices)
    return cfg


def _count(devices: Any) -> int:
    if isinstance(devices, (ListConfig, list)):
        return len(devices)
    is_number = isinstance(devices, int) or (isinstance(devices, str) and devices.isdecimal())
    return max(1, int(devices)) if is_number else 1


def _listed(devices: Any) -> Any:
    """Return GPUs as the list of their numbers; a list stays as it is."""
    if devices is None:
        return [0]
    if str(devices) in ("-1", "auto"):
        return list(range(max(1, torch.cuda.device_count())))
    if isinstance(devices, str) and "," in devices:
        return [int(number) for number in devices.split(",") if number.strip()]
    if isinstance(devices, int) or (isinstance(devices, str) and devices.isdecimal()):
        return list(range(max(1, int(devices))))
    return devices


def add_trainer_settings(original: Any, cfg: DictConfig) -> DictConfig:
    """Add a strategy and devices that Lightning 2 accepts."""
    return complete_trainer_settings(original(cfg))


def add_and_apply_trainer_settings(original: Any, cfg: DictConfig) -> DictConfig:
    """Add a strategy and devices that Lightning 2 accepts, and set the seed.

    ``main_pretrain.py`` sets it itself after it has parsed its configuration.
    """
    cfg = complete_trainer_settings(original(cfg))
    seed_everything(cfg.seed)
    return cfg


CHANGES = (
    Wrap("args.pretrain", "add_and_assert_lightning_cfg", add_trainer_settings),
    Wrap("args.linear", "add_and_assert_lightning_cfg", add_and_apply_trainer_settings),
)
