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
    on_cpu = runs_on_cpu(cfg)
    if OmegaConf.select(cfg, "accelerator", default=None) in (None, "None", "auto"):
        cfg.accelerator = "cpu" if on_cpu else "gpu"
    available = 1 if on_cpu else torch.cuda.device_count()
    devices = _listed(OmegaConf.select(cfg, "devices", default=None), max(1, available))
    if on_cpu:
        processes = len(devices)
        cfg.devices = str(processes).zfill(processes)
    else:
        cfg.devices = devices
    return cfg


def _listed(devices: Any, available: int) -> list[Any]:
    """Return devices as the list of their numbers."""
    if devices is None:
        return [0]
    if isinstance(devices, (ListConfig, list)):
        numbers = list(devices)
    elif "," in str(devices):
        numbers = [int(number) for number in devices.split(",") if number.strip()]
    elif str(devices) in ("-1", "auto"):
        numbers = list(range(available))
    elif str(devices).isdecimal():
        numbers = list(range(int(devices)))
    else:
        raise ValueError(f"devices must be a number, a list of numbers or auto, got {devices!r}.")
    if not numbers:
        raise ValueError(
            f"devices must name at least one device, got {devices!r}: devices=1 is one of them, "
            "devices=[0] is the first."
        )
    return numbers


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
