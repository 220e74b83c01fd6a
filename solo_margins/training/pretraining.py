"""Pretraining as a function of a configuration."""

from __future__ import annotations

from typing import Any

import torch
from omegaconf import DictConfig

from solo_margins import host
from solo_margins.cli import user_errors
from solo_margins.config import setting
from solo_margins.training.checked_config import checked
from solo_margins.training.run_folder import RunResult
from solo_margins.training.trainer import train

WITHOUT_TWO_LARGE_CROPS = ("wmse", "mae")


def pretrain(cfg: DictConfig) -> RunResult:
    """Pretrain a backbone; see :func:`solo_margins.training.pretrain`."""
    cfg = checked(cfg)
    if setting(cfg, "results") is None and not setting(cfg, "skip_finished", False):
        return _pretrain(cfg)
    from solo_margins.training.results_log import recorded

    return recorded("pretrain", _pretrain, cfg)


def _pretrain(cfg: DictConfig) -> RunResult:
    with user_errors():
        cfg = parsed(cfg)
        host.pl.seed_everything(cfg.seed, workers=True)
        model = build_method(cfg)
    return train(cfg, model)


def parsed(cfg: DictConfig) -> DictConfig:
    """Return a checked configuration as solo-learn completes it: crops counted, rates scaled."""
    if setting(cfg, "auto_umap.enabled", False):
        raise ValueError(
            "auto_umap.enabled=true is not offered here; solo-learn's own main_pretrain.py has it."
        )
    classes = setting(cfg, "data.num_classes")
    cfg = host.parse_pretrain_cfg(cfg)
    if classes is not None:
        # solo-learn counts empty and hidden folders, too.
        cfg.data.num_classes = classes
    if cfg.data.num_large_crops != 2 and cfg.method not in WITHOUT_TWO_LARGE_CROPS:
        raise ValueError(
            f"The method {cfg.method!r} compares 2 large crops, but augmentations make "
            f"{cfg.data.num_large_crops}: check num_crops of the views."
        )
    return cfg


def build_method(cfg: DictConfig) -> Any:
    """Return the method of a parsed configuration, in the memory layout that trains fastest."""
    model = host.METHODS[cfg.method](cfg)
    host.make_contiguous(model)
    if not cfg.performance.disable_channel_last:
        model = model.to(memory_format=torch.channels_last)
    return model
