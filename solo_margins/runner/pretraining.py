"""Pretraining as a function of a configuration."""

from __future__ import annotations

from typing import Any

import torch
from omegaconf import DictConfig

from solo_margins import host
from solo_margins.host import named_data
from solo_margins.runner import settings
from solo_margins.runner.data import pretraining_data
from solo_margins.runner.numbers import check_numbers
from solo_margins.runner.program import explained
from solo_margins.runner.runs import choose_run
from solo_margins.runner.training import RunResult, train

WITHOUT_TWO_LARGE_CROPS = ("wmse", "mae")


def pretrain(cfg: DictConfig) -> RunResult:
    """Pretrain a backbone; see :func:`solo_margins.runner.pretrain`."""
    with explained():
        cfg = parse(cfg)
        host.pl.seed_everything(cfg.seed, workers=True)
        model = build_method(cfg)
        data = pretraining_data(cfg)
        run = choose_run(cfg, kind=cfg.method)
    return train(cfg, model, data, run)


def parse(cfg: DictConfig) -> DictConfig:
    """Return a configuration that is checked and complete."""
    cfg = settings.own_copy(cfg)
    settings.require(cfg, ["method", "augmentations"])
    _check_method(cfg.method)
    named_data.locate(cfg, pretraining=True)
    settings.check_names(cfg, host.BaseMethod)
    check_numbers(cfg)
    settings.check_paths(cfg, "data.train_path")
    if settings.setting(cfg, "data.val_path") and not settings.setting(cfg, "data.no_labels"):
        settings.check_paths(cfg, "data.val_path")
    if settings.setting(cfg, "auto_umap.enabled", False):
        raise ValueError(
            "auto_umap.enabled=true is not offered here; solo-learn's own main_pretrain.py has it."
        )
    settings.check_dali(cfg)
    settings.complete(cfg)
    cfg = host.parse_pretrain_cfg(cfg)
    if cfg.data.num_large_crops != 2 and cfg.method not in WITHOUT_TWO_LARGE_CROPS:
        raise ValueError(
            f"The method {cfg.method!r} compares 2 large crops, but augmentations make "
            f"{cfg.data.num_large_crops}: check num_crops of the views."
        )
    return cfg


def _check_method(name: str) -> None:
    methods = host.METHODS
    try:
        # Subscription, not `in`: a method that this solo-learn lacks says who has it.
        methods[name]
    except KeyError:
        trainable = sorted(set(methods) - {"base", "linear"})
        message = f"method must be one of {', '.join(trainable)}, got {name!r}."
        raise ValueError(message) from None


def build_method(cfg: DictConfig) -> Any:
    """Return the method of a parsed configuration, in the memory layout that trains fastest."""
    model = host.METHODS[cfg.method](cfg)
    host.make_contiguous(model)
    if not cfg.performance.disable_channel_last:
        model = model.to(memory_format=torch.channels_last)
    return model
