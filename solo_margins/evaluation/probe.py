"""Linear probe of a pretrained backbone on features that are extracted once.

    python -m solo_margins.evaluation.probe pretrained_feature_extractor=<checkpoint> passes=4

The protocol is that of ``linear.yaml``, whose settings apply here as far as they say anything about
a linear layer. Data are those of the pretraining unless ``data=…`` names others; the image size
always is.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig

from solo_margins.cli import run_cli, user_errors
from solo_margins.evaluation.command import Own, parse
from solo_margins.evaluation.features import Features
from solo_margins.evaluation.knn import knn_accuracy
from solo_margins.evaluation.linear_layer import (
    LayerSettings,
    layer_accuracy,
    train_linear_layer,
)
from solo_margins.evaluation.task import Task, load_task
from solo_margins.training.checked_config import check_choice

OWN: Own = {"passes": (int, 4)}
"""Settings of the command line besides those of ``linear.yaml``: type and default."""

PROTOCOL = (
    "max_epochs",
    "optimizer.name",
    "optimizer.batch_size",
    "optimizer.lr",
    "optimizer.weight_decay",
    "optimizer.kwargs",
    "optimizer.kwargs.momentum",
    "scheduler.name",
    "scheduler.warmup_epochs",
    "scheduler.warmup_start_lr",
    "scheduler.min_lr",
    "data.augmentations.crop_min_scale",
    "data.augmentations.flip_prob",
)
"""Settings of ``linear.yaml`` that apply to a layer on frozen features."""


@dataclass(frozen=True)
class ProbeResult:
    """Accuracies in percent on the validation images, and what they took."""

    acc1: float
    acc5: float
    passes: int
    epochs: int
    train_images: int
    validation_images: int
    num_classes: int
    num_features: int
    extraction_seconds: float
    training_seconds: float


def fast_probe(
    cfg: DictConfig,
    passes: int = 4,
    device: str = "auto",
    extraction_batch_size: int = 256,
    progress: bool = True,
) -> ProbeResult:
    """Train a linear layer on features of a checkpoint and return how well it classifies.

    Args:
        cfg: a linear configuration, such as ``linear.yaml`` composed with overrides.
        passes: passes over the training images with random crops and flips, used in turn by the
            epochs; 0 trains on the plain centre view.
        device: where the backbone runs and the layer is trained; ``"auto"`` takes a GPU if there
            is one.
        extraction_batch_size: views that the backbone sees at a time.
        progress: whether there are progress bars.

    Raises:
        SetupError: the configuration cannot be run; the message says what is wrong.
    """
    with user_errors():
        check_probe(cfg, passes, extraction_batch_size)
        began = time.perf_counter()
        task = load_task(cfg)
        how: dict[str, Any] = {
            "batch_size": extraction_batch_size,
            "device": device,
            "progress": progress,
        }
        validation = task.features(task.validation, title="validation", **how)
        train = task.features(task.train, passes, title="training", **how)
        extracted = time.perf_counter() - began
        return probe_features(task, train, validation, passes, extracted, device, progress)


def check_probe(cfg: DictConfig, passes: int, extraction_batch_size: int) -> None:
    """Raise ``ValueError`` unless the settings are those of a probe."""
    _check("passes", passes, least=0)
    _check("extraction_batch_size", extraction_batch_size, least=1)
    check_choice("scheduler.name", cfg.scheduler.name, ("warmup_cosine",))


def probe_features(
    task: Task,
    train: Features,
    validation: Features,
    passes: int,
    extraction_seconds: float,
    device: str = "auto",
    progress: bool = True,
) -> ProbeResult:
    """Train a linear layer on features that were extracted and return how well it classifies.

    Args:
        task: what the features are of; its configuration says how the layer is trained.
        train: features of the training images.
        validation: features of the centre views of the validation images.
        passes: what ``train`` was extracted with.
        extraction_seconds: how long the features took.
        device: where the layer is trained.
        progress: whether there is a progress bar.
    """
    began = time.perf_counter()
    # The configuration as parsed: its learning rate is scaled by the batch size.
    settings = _layer_settings(task.cfg)
    num_classes = int(task.cfg.data.num_classes)
    layer = train_linear_layer(train, num_classes, settings, device, progress)
    acc1, acc5 = layer_accuracy(layer, validation)
    return ProbeResult(
        acc1,
        acc5,
        passes,
        settings.epochs,
        len(train),
        len(validation),
        num_classes,
        train.values.shape[-1],
        extraction_seconds,
        time.perf_counter() - began,
    )


def _check(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")


def _layer_settings(cfg: DictConfig) -> LayerSettings:
    return LayerSettings(
        epochs=cfg.max_epochs,
        batch_size=cfg.optimizer.batch_size,
        lr=cfg.optimizer.lr,
        weight_decay=cfg.optimizer.weight_decay,
        optimizer=cfg.optimizer.name,
        optimizer_kwargs=dict(cfg.optimizer.kwargs),
        warmup_epochs=cfg.scheduler.warmup_epochs,
        warmup_start_lr=cfg.scheduler.warmup_start_lr,
        min_lr=cfg.scheduler.min_lr,
        seed=cfg.seed,
    )


def probe(arguments: Sequence[str], progress: bool = True) -> ProbeResult:
    """Return and print the accuracy of the checkpoint that ``key=value`` arguments name."""
    with user_errors():
        cfg, own = parse(arguments, OWN, PROTOCOL)
    found = fast_probe(
        cfg, own["passes"], own["device"], own["extraction_batch_size"], progress=progress
    )
    views = f"{found.passes} augmented passes" if found.passes else "centre view"
    print(
        f"Fast linear probe ({found.epochs} epochs, {views}): "
        f"acc1 = {found.acc1:.2f} %, acc5 = {found.acc5:.2f} %"
    )
    print(
        f"{found.train_images} + {found.validation_images} images, {found.num_classes} classes: "
        f"{found.extraction_seconds:.1f} s for features, {found.training_seconds:.1f} s for "
        "training"
    )
    return found


def linear_and_knn(
    arguments: Sequence[str], progress: bool = True
) -> tuple[ProbeResult, dict[str, float]]:
    """Return the accuracies of a linear probe and of a kNN vote, from features extracted once.

    Args:
        arguments: ``key=value`` settings of the fast probe; those of the vote have their defaults.
        progress: whether there are progress bars.
    """
    with user_errors():
        cfg, own = parse(arguments, OWN, PROTOCOL)
        passes, device = own["passes"], own["device"]
        check_probe(cfg, passes, own["extraction_batch_size"])
        how = {
            "batch_size": own["extraction_batch_size"],
            "device": device,
            "progress": progress,
        }
        began = time.perf_counter()
        task = load_task(cfg)
        validation = task.features(task.validation, title="validation", **how)
        centre = task.features(task.train, title="training", **how)
        seen = task.features(task.train, passes, title="crops", **how) if passes else centre
        seconds = time.perf_counter() - began
        layer = probe_features(task, seen, validation, passes, seconds, device, progress)
        return layer, knn_accuracy(centre, validation)


if __name__ == "__main__":
    run_cli(probe, sys.argv[1:])
