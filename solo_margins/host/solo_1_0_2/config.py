"""Configurations as the repository parses them: defaults, checks and scaled rates."""

import os
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from solo_margins.config import require
from solo_margins.host.repairs.trainer_settings import complete_trainer_settings
from solo_margins.losses.checks import require_choice

NUM_CLASSES = {"cifar10": 10, "cifar100": 100, "stl10": 10, "imagenet": 1000, "imagenet100": 100}
DATASETS = (*NUM_CLASSES, "custom")
DALI_DATASETS = ("imagenet", "imagenet100", "custom")

DEFAULTS: Any = OmegaConf.load(Path(__file__).with_name("defaults.yaml"))


def set_defaults(cfg: DictConfig, *parts: str) -> DictConfig:
    """Return the configuration with absent settings filled in from parts of ``defaults.yaml``."""
    with open_dict(cfg):
        cfg.merge_with(OmegaConf.merge(*(DEFAULTS.get(part) or {} for part in parts), cfg))
    return cfg


def parse_pretrain_cfg(cfg: DictConfig) -> DictConfig:
    """Return a pretraining configuration with defaults, numbers of crops and classes, scaled rates.

    The learning rates are multiplied by the total batch size over 256.
    """
    _complete(cfg, "pretraining")
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
    return _complete(cfg, "linear")


def _complete(cfg: DictConfig, kind: str) -> DictConfig:
    """Fill in what pretraining and probing share, and scale the learning rate."""
    dataset = require_choice("data.dataset", cfg.data.dataset, DATASETS)
    set_defaults(cfg, "shared", kind, "module", cfg.optimizer.name)
    complete_trainer_settings(cfg)
    if cfg.data.format == "dali":
        require_choice("data.dataset with data.format=dali", dataset, DALI_DATASETS)
    classes = NUM_CLASSES.get(dataset)
    if classes is None:
        # The online classifier needs an output even where there are no labels.
        classes = max(1, sum(entry.is_dir() for entry in os.scandir(cfg.data.train_path)))
    cfg.data.num_classes = classes
    cfg.optimizer.lr *= _batch_factor(cfg)
    return cfg


def _batch_factor(cfg: DictConfig) -> float:
    return cfg.optimizer.batch_size * len(cfg.devices) * cfg.num_nodes / 256
