"""Configurations of pretraining, parsed as ``solo.args.pretrain`` does."""

from omegaconf import DictConfig

from solo_margins.config import require
from solo_margins.solo_1_0_2.config import batch_factor, complete


def parse_cfg(cfg: DictConfig) -> DictConfig:
    """Return a pretraining configuration with defaults, numbers of crops and classes, scaled rates.

    The learning rates are multiplied by the total batch size over 256.
    """
    complete(cfg, "pretraining")
    large = cfg.augmentations[0].crop_size
    cfg.data.num_large_crops = 0
    cfg.data.num_small_crops = 0
    for view in cfg.augmentations:
        if view.crop_size == large:
            cfg.data.num_large_crops += view.num_crops
        else:
            cfg.data.num_small_crops += view.num_crops
    if cfg.data.val_path is not None:
        require(cfg, "optimizer.classifier_lr")
        cfg.optimizer.classifier_lr *= batch_factor(cfg)
    return cfg
