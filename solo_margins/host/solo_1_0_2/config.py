"""Configurations as the repository parses them: defaults, checks and scaled rates."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from solo_margins.host.repairs.trainer_settings import complete_trainer_settings

NUM_CLASSES = {"cifar10": 10, "cifar100": 100, "stl10": 10, "imagenet": 1000, "imagenet100": 100}
DATASETS = (*NUM_CLASSES, "custom")
DALI_DATASETS = ("imagenet", "imagenet100", "custom")

SHARED_DEFAULTS: dict[str, Any] = {
    "checkpoint.enabled": False,
    "checkpoint.dir": "trained_models",
    "checkpoint.frequency": 1,
    "checkpoint.keep_prev": False,
    "auto_resume.enabled": False,
    "auto_resume.max_hours": 36,
    "dali.device": "gpu",
    "data.format": "image_folder",
    "data.fraction": -1,
    "wandb.enabled": False,
    "wandb.entity": None,
    "wandb.project": "solo-learn",
    "wandb.offline": False,
    "seed": 5,
    "resume_from_checkpoint": None,
    "strategy": None,
    "num_nodes": 1,
    "optimizer.kwargs": {},
}

OPTIMIZER_DEFAULTS: dict[str, dict[str, Any]] = {
    "sgd": {"momentum": 0.9},
    "lars": {"momentum": 0.9, "eta": 1e-3, "clip_lr": False, "exclude_bias_n_norm": False},
    "adam": {},
    "adamw": {"betas": [0.9, 0.999]},
}


def omegaconf_select(cfg: DictConfig, key: str, default: Any = None) -> Any:
    """Return a setting, or a default when it is absent; the word None means None."""
    value = OmegaConf.select(cfg, key, default=default)
    return None if isinstance(value, str) and value == "None" else value


def set_defaults(cfg: DictConfig, defaults: Mapping[str, Any]) -> DictConfig:
    """Return the configuration with absent settings, given by their dotted keys, filled in."""
    for key, default in defaults.items():
        OmegaConf.update(cfg, key, omegaconf_select(cfg, key, default), force_add=True)
    return cfg


def require(cfg: DictConfig, keys: Sequence[str]) -> None:
    """Raise ``ValueError`` naming the first setting that is absent or left at ``???``."""
    for key in keys:
        if OmegaConf.select(cfg, key, default=None) is None:
            raise ValueError(f"The configuration needs a value for {key}.")


def parse_pretrain_cfg(cfg: DictConfig) -> DictConfig:
    """Return a pretraining configuration with defaults, numbers of crops and classes, scaled rates.

    The learning rates are multiplied by the total batch size over 256.
    """
    require(cfg, ["data.dataset", "data.train_path", "augmentations", "optimizer.batch_size"])
    _complete(cfg, {"dali.encode_indexes_into_labels": False, "data.val_path": None})
    set_defaults(cfg, {"data.no_labels": False, "debug_augmentations": False})

    large = cfg.augmentations[0].crop_size
    crops = [(view.crop_size == large, view.num_crops) for view in cfg.augmentations]
    cfg.data.num_large_crops = sum(number for is_large, number in crops if is_large)
    cfg.data.num_small_crops = sum(number for is_large, number in crops if not is_large)

    factor = _batch_factor(cfg)
    cfg.optimizer.lr *= factor
    if cfg.data.val_path is not None:
        require(cfg, ["optimizer.classifier_lr"])
        cfg.optimizer.classifier_lr *= factor
    return cfg


def parse_linear_cfg(cfg: DictConfig) -> DictConfig:
    """Return a configuration for linear evaluation or fine-tuning, completed and scaled."""
    require(
        cfg,
        [
            "data.dataset",
            "data.train_path",
            "data.val_path",
            "backbone.name",
            "pretrained_feature_extractor",
        ],
    )
    _complete(
        cfg,
        {
            "backbone.kwargs": {},
            "pretrain_method": None,
            "auto_augment": False,
            "label_smoothing": 0.0,
            "mixup": 0.0,
            "cutmix": 0.0,
            "data.augmentations.crop_size": 224,
        },
    )
    cfg.optimizer.lr *= _batch_factor(cfg)
    return cfg


def _complete(cfg: DictConfig, defaults: Mapping[str, Any]) -> None:
    dataset = cfg.data.dataset
    if dataset not in DATASETS:
        raise ValueError(f"data.dataset must be one of {sorted(DATASETS)}, got {dataset!r}.")
    set_defaults(cfg, {**SHARED_DEFAULTS, **defaults})
    complete_trainer_settings(cfg)
    if cfg.data.format == "dali" and dataset not in DALI_DATASETS:
        raise ValueError(
            f"data.format=dali needs data.dataset in {DALI_DATASETS}, got {dataset!r}."
        )
    if dataset in NUM_CLASSES:
        cfg.data.num_classes = NUM_CLASSES[dataset]
    else:
        # The online classifier needs an output even where there are no labels.
        folders = sum(entry.is_dir() for entry in os.scandir(cfg.data.train_path))
        cfg.data.num_classes = max(1, folders)
    set_defaults(
        cfg,
        {
            f"optimizer.kwargs.{key}": value
            for key, value in OPTIMIZER_DEFAULTS.get(cfg.optimizer.name, {}).items()
        },
    )


def _batch_factor(cfg: DictConfig) -> float:
    return cfg.optimizer.batch_size * len(cfg.devices) * cfg.num_nodes / 256
