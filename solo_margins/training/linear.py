"""Linear probing as a function of a configuration: it is checked once, then built, then fitted."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from omegaconf import DictConfig
from solo.args.linear import parse_cfg

from solo_margins.backbones import build_backbone, load_backbone
from solo_margins.checkpoints import read_settings
from solo_margins.config import setting
from solo_margins.data.datamodule import RunData
from solo_margins.methods.linear import LinearClassifier
from solo_margins.training.checked_config import checked_probe
from solo_margins.training.continuing import note_checkpoint
from solo_margins.training.fit import fit, in_memory_format
from solo_margins.training.results_log import recorded
from solo_margins.training.run_folder import Run, choose_run, data_and_variant


def linear(cfg: DictConfig) -> Run:
    """Train a linear classifier on a pretrained backbone and return its validation accuracy.

    Args:
        cfg: a linear configuration with solo-learn's keys. ``pretrained_feature_extractor`` names
            a checkpoint or the folder of its run; what the configuration leaves open of
            ``backbone``, ``pretrain_method``, ``data`` and ``data.augmentations`` is taken from
            the ``args.json`` beside it. The optional keys of `solo_margins.training.pretrain`
            are read here too.

    Raises:
        ValueError: the configuration cannot be run; the message is one sentence that says why.
        TrainingStopped: the run cannot succeed; a ValueError, too.
        TrainingInterrupted: Ctrl-C or SIGTERM; it carries the checkpoint that was saved.
    """
    cfg = checked_probe(cfg)
    note_checkpoint(cfg, _completed)
    kind = "finetune" if setting(cfg, "finetune") else "linear"
    return recorded(kind, _build_and_fit, cfg)


def _completed(cfg: DictConfig) -> DictConfig:
    """Return a checked configuration as solo-learn and the classifier complete it."""
    return LinearClassifier.add_and_assert_specific_cfg(parsed_probe(cfg))


def _build_and_fit(cfg: DictConfig) -> Run:
    cfg = parsed_probe(cfg)
    pl.seed_everything(cfg.seed, workers=True)
    model = build_classifier(cfg)
    data = RunData(cfg, pretraining=False)
    checkpoint = Path(cfg.pretrained_feature_extractor)
    unnamed = f"{checkpoint.stem}-on-{data_and_variant(cfg)[0]}"
    run = choose_run(cfg, kind="linear", unnamed=unnamed)
    classifier = "Fine-tuned network" if cfg.finetune else "Linear classifier"
    return fit(cfg, model, data, run, classifier=classifier)


def parsed_probe(cfg: DictConfig) -> DictConfig:
    """Return a checked linear configuration as solo-learn completes it: classes, rates scaled."""
    classes = setting(cfg, "data.num_classes")
    cfg = parse_cfg(cfg)
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
    backbone = build_backbone(described)
    load_backbone(backbone, checkpoint)
    return backbone


def build_classifier(cfg: DictConfig) -> pl.LightningModule:
    """Return the classifier of a parsed linear configuration, on its pretrained backbone."""
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
    return in_memory_format(model, cfg)
