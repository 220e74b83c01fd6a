"""Trainer settings that the host leaves in a state Lightning 2 refuses."""

from __future__ import annotations

import warnings

from omegaconf import DictConfig, ListConfig, OmegaConf


def complete_trainer_settings(cfg: DictConfig) -> DictConfig:
    """Return the configuration with a strategy and devices that Lightning 2 accepts.

    Without a strategy Lightning chooses one. The host scales learning rates by
    ``len(cfg.devices)`` while Lightning wants a number of processes on the CPU: ``"1"``, or for n
    processes a decimal padded to n digits, satisfies both.
    """
    if OmegaConf.select(cfg, "strategy", default=None) in (None, "None"):
        cfg.strategy = "auto"
    accelerator = OmegaConf.select(cfg, "accelerator", default="auto")
    devices = OmegaConf.select(cfg, "devices", default=None)
    if devices is None:
        cfg.devices = "1" if accelerator == "cpu" else [0]
    elif accelerator == "cpu":
        cfg.devices = _cpu_devices(devices)
    elif isinstance(devices, int) and devices > 0:
        cfg.devices = list(range(devices))
    _drop_absent_backbone_settings(cfg)
    _warn_about_long_warmup(cfg)
    _drop_settings_of_other_optimizers(cfg)
    return cfg


OPTIMIZER_SETTINGS = {
    "sgd": {"momentum", "dampening", "nesterov"},
    "lars": {"momentum", "dampening", "nesterov", "eta", "eps", "clip_lr", "exclude_bias_n_norm"},
    "adam": {"betas", "eps", "amsgrad"},
    "adamw": {"betas", "eps", "amsgrad"},
}
"""What ``optimizer.kwargs`` may hold, by ``optimizer.name``."""


def _drop_settings_of_other_optimizers(cfg: DictConfig) -> None:
    """Let another optimizer be chosen than the one that a data set's recipe has settings for.

    Composed configurations are merged, so LARS's settings would reach SGD, which refuses them. Keys
    that belong to no optimizer stay, and are refused.
    """
    name = OmegaConf.select(cfg, "optimizer.name", default=None)
    given = OmegaConf.select(cfg, "optimizer.kwargs", default=None)
    if not given or name not in OPTIMIZER_SETTINGS:
        return
    known = set().union(*OPTIMIZER_SETTINGS.values())
    for key in known - OPTIMIZER_SETTINGS[name]:
        given.pop(key, None)


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


def _drop_absent_backbone_settings(cfg: DictConfig) -> None:
    """Remove settings of the backbone that are null.

    A recipe that changes the backbone cannot delete what a data set's recipe has set for its own;
    solo-learn hands every key on, and another backbone refuses it.
    """
    kwargs = OmegaConf.select(cfg, "backbone.kwargs", default=None)
    for name in [name for name in kwargs or {} if kwargs[name] is None]:
        del kwargs[name]


def _warn_about_long_warmup(cfg: DictConfig) -> None:
    warmup = OmegaConf.select(cfg, "scheduler.warmup_epochs", default=10)
    is_warmed_up = OmegaConf.select(cfg, "scheduler.name", default=None) == "warmup_cosine"
    max_epochs = OmegaConf.select(cfg, "max_epochs", default=None)
    if is_warmed_up and warmup and max_epochs and warmup > max_epochs:
        warnings.warn(
            f"scheduler.warmup_epochs={warmup} exceeds max_epochs={max_epochs}: the learning rate "
            "never reaches optimizer.lr.",
            stacklevel=2,
        )
