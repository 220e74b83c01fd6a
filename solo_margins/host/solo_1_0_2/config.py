"""Configurations as the repository parses them: defaults, checks and scaled rates."""

import os
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from solo_margins.host.repairs.trainer_settings import complete_trainer_settings

NUM_CLASSES = {"cifar10": 10, "cifar100": 100, "stl10": 10, "imagenet": 1000, "imagenet100": 100}
DATASETS = (*NUM_CLASSES, "custom")
DALI_DATASETS = ("imagenet", "imagenet100", "custom")

SHARED_DEFAULTS = {
    "checkpoint": {"enabled": False, "dir": "trained_models", "frequency": 1, "keep_prev": False},
    "auto_resume": {"enabled": False, "max_hours": 36},
    "dali": {"device": "gpu"},
    "data": {"format": "image_folder", "fraction": -1},
    "wandb": {"enabled": False, "entity": None, "project": "solo-learn", "offline": False},
    "seed": 5,
    "resume_from_checkpoint": None,
    "strategy": None,
    "num_nodes": 1,
}
PRETRAINING_DEFAULTS = {
    "dali": {"encode_indexes_into_labels": False},
    "data": {"val_path": None, "no_labels": False},
    "debug_augmentations": False,
}
LINEAR_DEFAULTS: dict[str, Any] = {
    "backbone": {"kwargs": {}},
    "pretrain_method": None,
    "auto_augment": False,
    "label_smoothing": 0.0,
    "mixup": 0.0,
    "cutmix": 0.0,
    "data": {"augmentations": {"crop_size": 224}},
}
OPTIMIZER_DEFAULTS = {"sgd": {"momentum": 0.9}, "adamw": {"betas": [0.9, 0.999]}}
# Of every module that is trained.
MODULE_DEFAULTS = {
    "accumulate_grad_batches": 1,
    "optimizer": {"kwargs": {}},
    "scheduler": {"min_lr": 0.0, "warmup_start_lr": 3e-5, "warmup_epochs": 10, "interval": "step"},
    "performance": {"disable_channel_last": False},
}


def set_defaults(cfg: DictConfig, *defaults: dict[str, Any]) -> DictConfig:
    """Return the configuration with absent settings filled in."""
    with open_dict(cfg):
        cfg.merge_with(OmegaConf.merge(*defaults, cfg))
    return cfg


def require(cfg: DictConfig, *keys: str) -> None:
    """Raise ``ValueError`` naming the first setting that is absent or left at ``???``."""
    for key in keys:
        if OmegaConf.select(cfg, key, default=None) is None:
            raise ValueError(f"The configuration needs a value for {key}.")


def parse_pretrain_cfg(cfg: DictConfig) -> DictConfig:
    """Return a pretraining configuration with defaults, numbers of crops and classes, scaled rates.

    The learning rates are multiplied by the total batch size over 256.
    """
    require(cfg, "data.dataset", "data.train_path", "augmentations", "optimizer.batch_size")
    _complete(cfg, PRETRAINING_DEFAULTS)
    large = cfg.augmentations[0].crop_size
    crops = [(view.crop_size == large, view.num_crops) for view in cfg.augmentations]
    cfg.data.num_large_crops = sum(number for is_large, number in crops if is_large)
    cfg.data.num_small_crops = sum(number for is_large, number in crops if not is_large)
    if cfg.data.val_path is not None:
        require(cfg, "optimizer.classifier_lr")
        cfg.optimizer.classifier_lr *= _batch_factor(cfg)
    return cfg


def parse_linear_cfg(cfg: DictConfig) -> DictConfig:
    """Return a configuration for linear evaluation or fine-tuning, completed and scaled."""
    require(cfg, "data.dataset", "data.train_path", "data.val_path")
    require(cfg, "backbone.name", "pretrained_feature_extractor")
    _complete(cfg, LINEAR_DEFAULTS)
    return cfg


def _complete(cfg: DictConfig, defaults: dict[str, Any]) -> None:
    """Fill in what pretraining and probing share, and scale the learning rate."""
    dataset = cfg.data.dataset
    if dataset not in DATASETS:
        raise ValueError(f"data.dataset must be one of {sorted(DATASETS)}, got {dataset!r}.")
    kwargs = OPTIMIZER_DEFAULTS.get(cfg.optimizer.name, {})
    set_defaults(cfg, SHARED_DEFAULTS, defaults, {"optimizer": {"kwargs": kwargs}})
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
    cfg.optimizer.lr *= _batch_factor(cfg)


def _batch_factor(cfg: DictConfig) -> float:
    return cfg.optimizer.batch_size * len(cfg.devices) * cfg.num_nodes / 256
