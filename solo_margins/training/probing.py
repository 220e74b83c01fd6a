"""Linear probing and fine-tuning as a function of a configuration."""

from __future__ import annotations

from typing import Any

import torch
from omegaconf import DictConfig

from solo_margins import host
from solo_margins.checkpoints import read_settings
from solo_margins.cli import user_errors
from solo_margins.config import setting
from solo_margins.training.checked_config import checked
from solo_margins.training.run_folder import RunResult
from solo_margins.training.trainer import train


def linear(cfg: DictConfig) -> RunResult:
    """Train a linear classifier on a backbone; see :func:`solo_margins.training.linear`."""
    cfg = checked(cfg)
    if setting(cfg, "results") is None and not setting(cfg, "skip_finished", False):
        return _linear(cfg)
    from solo_margins.training.results_log import recorded

    return recorded("linear", _linear, cfg)


def _linear(cfg: DictConfig) -> RunResult:
    with user_errors():
        cfg = parsed(cfg)
        host.pl.seed_everything(cfg.seed, workers=True)
        model = _classifier(cfg, pretrained_backbone(cfg))
    result = train(cfg, model)
    if "val_acc1" in result.metrics:
        print(f"Validation accuracy: {result.metrics['val_acc1']:.2f} %")
    return result


def parsed(cfg: DictConfig) -> DictConfig:
    """Return a checked configuration as solo-learn completes it, its learning rate scaled."""
    classes = setting(cfg, "data.num_classes")
    cfg = host.parse_linear_cfg(cfg)
    if classes is not None:
        # solo-learn counts empty and hidden folders, too.
        cfg.data.num_classes = classes
    return cfg


def pretrained_backbone(cfg: DictConfig) -> Any:
    """Return the backbone of a checked linear configuration with its checkpoint's weights.

    solo-learn chooses the stem of a ResNet by the name of the data set: that of the pretraining
    counts, not that of the probe.
    """
    described = cfg.copy()
    checkpoint = cfg.pretrained_feature_extractor
    trained_on = setting(read_settings(checkpoint), "data.dataset")
    if trained_on is not None:
        described.data.dataset = trained_on
    backbone = host.build_backbone(described)
    host.load_backbone(backbone, checkpoint)
    return backbone


def _classifier(cfg: DictConfig, backbone: Any) -> Any:
    loss, mixup = _loss_and_mixup(cfg)
    model = host.LinearModel(backbone, cfg=cfg, loss_func=loss, mixup_func=mixup)
    host.make_contiguous(model)
    if not cfg.performance.disable_channel_last:
        model = model.to(memory_format=torch.channels_last)
    return model


def _loss_and_mixup(cfg: DictConfig) -> tuple[Any, Any]:
    """Return the loss on training batches, and what mixes them, if anything."""
    if cfg.mixup > 0 or cfg.cutmix > 0:
        from timm.data.mixup import Mixup
        from timm.loss import SoftTargetCrossEntropy

        mixup = Mixup(
            mixup_alpha=cfg.mixup,
            cutmix_alpha=cfg.cutmix,
            label_smoothing=cfg.label_smoothing,
            num_classes=cfg.data.num_classes,
        )
        return SoftTargetCrossEntropy(), mixup
    return torch.nn.CrossEntropyLoss(label_smoothing=cfg.label_smoothing), None
