"""Pretraining and linear probing as functions of a configuration."""

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import seed_everything
from omegaconf import DictConfig
from solo.args import linear, pretrain

from solo_margins import checkpoints
from solo_margins.backbones import build_backbone, load_backbone
from solo_margins.checkpoints import read_settings
from solo_margins.cli import user_errors
from solo_margins.config import setting
from solo_margins.methods.linear import LinearClassifier
from solo_margins.registry import method_class
from solo_margins.same_run import CONTINUED_FROM
from solo_margins.training.checked_config import checked
from solo_margins.training.checkpointing import Run
from solo_margins.training.continuing import note_continuation
from solo_margins.training.trainer import train

WITHOUT_TWO_LARGE_CROPS = ("wmse", "mae")


def run(cfg: DictConfig) -> Run:
    """Pretrain or probe as a configuration says; record it if that names a results file."""
    cfg = checked(cfg)
    with user_errors():
        _note_checkpoint(cfg)
    if setting(cfg, "results") is None and not setting(cfg, "skip_finished", False):
        return _train(cfg)
    from solo_margins.training.results_log import recorded

    return recorded(_train, cfg)


def _note_checkpoint(cfg: DictConfig) -> None:
    """Write into the configuration which other run it goes on from, before it gets an id."""
    cfg.pop(CONTINUED_FROM, None)
    path = setting(cfg, "resume_from_checkpoint")
    if path is None:
        return
    checkpoints.check_exists(path, "resume_from_checkpoint=")
    content = checkpoints.read_checkpoint(path, in_place=True)
    # Checkpoints know the settings that solo-learn has completed.
    completed = parsed(cfg.copy())
    model: Any = LinearClassifier
    if "pretrained_feature_extractor" not in cfg:
        model = method_class(cfg.method)
    completed = model.add_and_assert_specific_cfg(completed)
    note_continuation(cfg, completed, Path(path), content)


def _train(cfg: DictConfig) -> Run:
    with user_errors():
        cfg = parsed(cfg)
        seed_everything(cfg.seed, workers=True)
        model = _classifier(cfg) if "pretrained_feature_extractor" in cfg else build_method(cfg)
    return train(cfg, model)


def parsed(cfg: DictConfig) -> DictConfig:
    """Return a checked configuration as solo-learn completes it: crops counted, rates scaled."""
    if setting(cfg, "auto_umap.enabled", False):
        raise ValueError(
            "auto_umap.enabled=true is not offered here; solo-learn's own main_pretrain.py has it."
        )
    classes = setting(cfg, "data.num_classes")
    is_probe = "pretrained_feature_extractor" in cfg
    cfg = linear.parse_cfg(cfg) if is_probe else pretrain.parse_cfg(cfg)
    if classes is not None:
        # solo-learn counts empty and hidden folders, too.
        cfg.data.num_classes = classes
    crops = 2 if is_probe else cfg.data.num_large_crops
    if crops != 2 and cfg.method not in WITHOUT_TWO_LARGE_CROPS:
        raise ValueError(
            f"The method {cfg.method!r} compares 2 large crops, but augmentations make {crops}: "
            "check num_crops of the views."
        )
    return cfg


def build_method(cfg: DictConfig) -> Any:
    """Return the method of a parsed configuration, in the memory layout that trains fastest."""
    return _in_memory_format(method_class(cfg.method)(cfg), cfg)


def _in_memory_format(model: Any, cfg: DictConfig) -> Any:
    for parameter in model.parameters():
        # As distributed training expects.
        parameter.data = parameter.data.contiguous()
    if not cfg.performance.disable_channel_last:
        model = model.to(memory_format=torch.channels_last)
    return model


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
    backbone = build_backbone(described)
    load_backbone(backbone, checkpoint)
    return backbone


def _classifier(cfg: DictConfig) -> Any:
    backbone = pretrained_backbone(cfg)
    loss: Any = torch.nn.CrossEntropyLoss(label_smoothing=cfg.label_smoothing)
    mixup = None
    if cfg.mixup > 0 or cfg.cutmix > 0:
        from timm.data.mixup import Mixup
        from timm.loss import SoftTargetCrossEntropy

        loss = SoftTargetCrossEntropy()
        mixup = Mixup(
            mixup_alpha=cfg.mixup,
            cutmix_alpha=cfg.cutmix,
            label_smoothing=cfg.label_smoothing,
            num_classes=cfg.data.num_classes,
        )
    model = LinearClassifier(backbone, cfg=cfg, loss_func=loss, mixup_func=mixup)
    return _in_memory_format(model, cfg)
