"""Configurations completed as the repository does: defaults, checks and scaled rates."""

import os
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from solo_margins.devices import complete_trainer_settings
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


def complete(cfg: DictConfig, kind: str) -> DictConfig:
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
    cfg.optimizer.lr *= batch_factor(cfg)
    return cfg


def batch_factor(cfg: DictConfig) -> float:
    """Return by what learning rates are multiplied: the total batch size over 256."""
    return cfg.optimizer.batch_size * len(cfg.devices) * cfg.num_nodes / 256
