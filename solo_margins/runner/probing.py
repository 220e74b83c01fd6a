"""Linear probing and fine-tuning as a function of a configuration."""

from __future__ import annotations

from typing import Any

import torch
from omegaconf import DictConfig

from solo_margins import host
from solo_margins.host import named_data
from solo_margins.runner import settings
from solo_margins.runner.checkpoints import (
    fill_from_pretraining,
    find_checkpoint,
    pretrained_backbone,
    pretraining_args,
)
from solo_margins.runner.data import probing_data
from solo_margins.runner.numbers import check_numbers
from solo_margins.runner.program import explained
from solo_margins.runner.runs import choose_run
from solo_margins.runner.training import RunResult, train


def linear(cfg: DictConfig) -> RunResult:
    """Train a linear classifier on a backbone; see :func:`solo_margins.runner.linear`."""
    with explained():
        cfg, args = parse_linear(cfg)
        host.pl.seed_everything(cfg.seed, workers=True)
        checkpoint = find_checkpoint(cfg.pretrained_feature_extractor)
        backbone = pretrained_backbone(cfg, checkpoint, args)
        model = _classifier(cfg, backbone)
        data = probing_data(cfg)
        run = choose_run(cfg, kind="linear")
    result = train(cfg, model, data, run)
    if "val_acc1" in result.metrics:
        print(f"Validation accuracy: {result.metrics['val_acc1']:.2f} %")
    return result


def parse_linear(cfg: DictConfig) -> tuple[DictConfig, DictConfig]:
    """Return a checked and completed linear configuration, and that of the pretraining."""
    cfg = settings.own_copy(cfg)
    settings.require(cfg, ["pretrained_feature_extractor"])
    checkpoint = find_checkpoint(cfg.pretrained_feature_extractor)
    # A folder becomes its checkpoint, lest auto-resume goes on with the probe of an older one.
    cfg.pretrained_feature_extractor = str(checkpoint)
    args = pretraining_args(checkpoint)
    fill_from_pretraining(cfg, args)
    named_data.locate(cfg, pretraining=False)
    settings.check_names(cfg, host.LinearModel)
    check_numbers(cfg)
    settings.check_paths(cfg, "data.train_path", "data.val_path")
    settings.check_dali(cfg)
    settings.complete(cfg)
    return host.parse_linear_cfg(cfg), args


def _classifier(cfg: DictConfig, backbone: Any) -> Any:
    loss, mixup = _loss_and_mixup(cfg)
    model = host.LinearModel(backbone, cfg=cfg, loss_func=loss, mixup_func=mixup)
    host.make_contiguous(model)
    if not cfg.performance.disable_channel_last:
        model = model.to(memory_format=torch.channels_last)
    return model


def _loss_and_mixup(cfg: DictConfig) -> tuple[Any, Any]:
    """Return the loss on training batches, and what mixes them, if anything."""
    from timm.data.mixup import Mixup
    from timm.loss import LabelSmoothingCrossEntropy, SoftTargetCrossEntropy

    if cfg.mixup > 0 or cfg.cutmix > 0:
        mixup = Mixup(
            mixup_alpha=cfg.mixup,
            cutmix_alpha=cfg.cutmix,
            label_smoothing=cfg.label_smoothing,
            num_classes=cfg.data.num_classes,
        )
        return SoftTargetCrossEntropy(), mixup
    if cfg.label_smoothing > 0:
        return LabelSmoothingCrossEntropy(smoothing=cfg.label_smoothing), None
    return torch.nn.CrossEntropyLoss(), None
