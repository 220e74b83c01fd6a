"""Checks and completes a configuration before solo-learn reads it."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from solo_margins import host
from solo_margins.backbones import complaint_about
from solo_margins.checkpoint_settings import check_exists
from solo_margins.host.probed_data import take_data_of_pretraining
from solo_margins.host.recipe import NATIVE_SIZE

NEED_A_PATH = ("custom", "imagenet", "imagenet100")
"""Data sets that torchvision cannot download."""

KNOWN_LOGGERS = ("csv", "tensorboard")


def setting(cfg: Any, key: str, default: Any = None) -> Any:
    """Return a setting, or the default where it is absent, null or left at ``???``."""
    value = OmegaConf.select(cfg, key, default=None)
    return default if value is None or value in ("None", "???") else value


def own_copy(cfg: DictConfig) -> DictConfig:
    """Return a resolved copy that accepts new keys, so that the caller's stays as it is.

    Data that a linear configuration leaves open are those of the pretraining.
    """
    if not cfg:
        raise ValueError(
            "No configuration was named: add one, for example --config-name mocov3_margin.yaml."
        )
    own = copy.deepcopy(cfg)
    OmegaConf.set_struct(own, False)
    OmegaConf.set_readonly(own, False)
    checkpoint = setting(own, "pretrained_feature_extractor")
    if checkpoint is not None:
        check_exists(checkpoint)
        take_data_of_pretraining(own)
    OmegaConf.resolve(own)
    return own


def require(cfg: DictConfig, keys: Iterable[str]) -> None:
    """Raise ``ValueError`` naming every setting that has no value."""
    absent = [key for key in keys if setting(cfg, key) is None]
    if absent:
        raise ValueError(f"The configuration needs a value for {', '.join(absent)}.")


def check_choice(key: str, value: Any, allowed: Iterable[str]) -> None:
    """Raise ``ValueError`` listing what is allowed."""
    names = sorted(allowed)
    if value not in names:
        raise ValueError(f"{key} must be one of {', '.join(names)}, got {value!r}.")


def check_names(cfg: DictConfig, model: Any) -> None:
    """Check backbone, optimizer, scheduler and data set against what solo-learn knows."""
    require(cfg, ["backbone.name", "data.dataset", "optimizer.name", "optimizer.batch_size"])
    require(cfg, ["optimizer.lr", "optimizer.weight_decay", "scheduler.name", "max_epochs"])
    _check_backbone(str(cfg.backbone.name))
    check_choice("optimizer.name", cfg.optimizer.name, model._OPTIMIZERS)
    check_choice("scheduler.name", cfg.scheduler.name, model._SCHEDULERS)
    check_choice("data.dataset", cfg.data.dataset, NATIVE_SIZE)
    for name in setting(cfg, "loggers", {}):
        check_choice("A key of loggers", name, KNOWN_LOGGERS)


def _check_backbone(name: str) -> None:
    complaint = complaint_about(name)
    if complaint is not None:
        raise ValueError(complaint)
    known = host.BaseMethod._BACKBONES
    if name not in known:
        raise ValueError(
            f"backbone.name must be one of {', '.join(sorted(known))}, or timm/<model>, got "
            f"{name!r}."
        )


def check_paths(cfg: DictConfig, *keys: str) -> None:
    """Check that the data are where the configuration says."""
    needed = cfg.data.dataset in NEED_A_PATH
    is_file = setting(cfg, "data.format") == "h5"
    for key in keys:
        path = setting(cfg, key)
        if path is None:
            if needed:
                raise ValueError(f"{key} has no value: name the folder of images, {key}=<folder>.")
            continue
        # Where torchvision downloads to need not exist yet.
        if needed and not (Path(path).is_file() if is_file else Path(path).is_dir()):
            kind = "file" if is_file else "folder"
            raise ValueError(f"{key}={path} is not an existing {kind} (seen from {os.getcwd()}).")


def check_dali(cfg: DictConfig) -> None:
    """Check that DALI finds the device that it is to run on, and gives what the method needs."""
    import torch

    if setting(cfg, "data.format") != "dali":
        return
    device = setting(cfg, "dali.device", "gpu")
    check_choice("dali.device", device, ("cpu", "gpu"))
    if device == "gpu" and not torch.cuda.is_available():
        raise ValueError(
            "dali.device=gpu needs a CUDA device, and there is none: use dali.device=cpu, or "
            "data.format=image_folder."
        )
    tells_apart = str(setting(cfg, "method", "")).startswith("deepclusterv2")
    if tells_apart and not setting(cfg, "dali.encode_indexes_into_labels", False):
        raise ValueError(
            f"method={cfg.method} remembers images by their indexes, which DALI gives only with "
            "dali.encode_indexes_into_labels=true."
        )


def complete(cfg: DictConfig) -> None:
    """Fill in what solo-learn reads without a default."""
    if setting(cfg, "name") is None:
        cfg.name = setting(cfg, "method", "linear")
    for key, default in (("data.num_workers", 4), ("data.format", "image_folder")):
        if setting(cfg, key) is None:
            OmegaConf.update(cfg, key, default, force_add=True)
