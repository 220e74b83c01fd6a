"""Linear probe of a pretrained backbone on features that are extracted once.

    python -m solo_margins.evaluation.probe pretrained_feature_extractor=<checkpoint> passes=4

The protocol is that of ``linear.yaml``, whose settings apply here as far as they say anything about
a linear layer. Data are those of the pretraining unless ``data=…`` names others; the image size
always is.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig

from solo_margins.cli import run_cli, user_errors
from solo_margins.evaluation.command import parse
from solo_margins.evaluation.knn import knn_accuracy
from solo_margins.evaluation.linear_layer import layer_accuracy, train_linear_layer
from solo_margins.evaluation.task import Task, load_task
from solo_margins.training.checked_config import check_choice

OWN = {"passes": 4}

# Settings of ``linear.yaml`` that apply to a layer on frozen features.
PROTOCOL = """
    max_epochs optimizer.name optimizer.batch_size optimizer.lr optimizer.weight_decay
    optimizer.kwargs optimizer.kwargs.momentum scheduler.name scheduler.warmup_epochs
    scheduler.warmup_start_lr scheduler.min_lr data.augmentations.crop_min_scale
    data.augmentations.flip_prob
"""


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


def fast_probe(cfg: DictConfig, passes: int = 4, **extraction: Any) -> ProbeResult:
    """Train a linear layer on features of a checkpoint and return how well it classifies.

    Args:
        cfg: a linear configuration, such as ``linear.yaml`` composed with overrides.
        passes: passes over the training images with random crops and flips, used in turn by the
            epochs; 0 trains on the plain centre view.
        extraction: ``device`` where the backbone runs and the layer is trained (``"auto"`` takes a
            GPU if there is one), ``extraction_batch_size`` (views that the backbone sees at a time,
            256) and ``progress`` (whether there are progress bars).

    Raises:
        SetupError: the configuration cannot be run; the message says what is wrong.
    """
    with user_errors():
        return probe_features(_load(cfg, passes, **extraction), passes)


def _load(cfg: DictConfig, passes: Any, **extraction: Any) -> Task:
    if isinstance(passes, bool) or not isinstance(passes, int) or passes < 0:
        raise ValueError(f"passes must be a whole number of at least 0, got {passes!r}.")
    check_choice("scheduler.name", cfg.scheduler.name, ("warmup_cosine",))
    return load_task(cfg, **extraction)


def probe_features(task: Task, passes: int = 4) -> ProbeResult:
    """Train a linear layer on features of a task and return how well it classifies."""
    began = time.perf_counter()
    validation, train = task.validation_features, task.train_features(passes)
    extracted = time.perf_counter()
    layer = train_linear_layer(train, task.cfg, task.device, task.progress)
    acc1, acc5 = layer_accuracy(layer, validation)
    return ProbeResult(
        acc1,
        acc5,
        passes,
        task.cfg.max_epochs,
        len(train),
        len(validation),
        layer.out_features,
        layer.in_features,
        extracted - began,
        time.perf_counter() - extracted,
    )


def probe(arguments: Sequence[str], progress: bool = True) -> ProbeResult:
    """Return and print the accuracy of the checkpoint that ``key=value`` arguments name."""
    with user_errors():
        cfg, options = parse(arguments, OWN, PROTOCOL)
    result = fast_probe(cfg, **options, progress=progress)
    views = f"{result.passes} augmented passes" if result.passes else "centre view"
    print(
        f"Fast linear probe ({result.epochs} epochs, {views}): "
        f"acc1 = {result.acc1:.2f} %, acc5 = {result.acc5:.2f} %\n"
        f"{result.train_images} + {result.validation_images} images, {result.num_classes} classes: "
        f"{result.extraction_seconds:.1f} s for features, {result.training_seconds:.1f} s for "
        "training"
    )
    return result


def linear_and_knn(
    arguments: Sequence[str], progress: bool = True
) -> tuple[ProbeResult, dict[str, float]]:
    """Return the accuracies of a linear probe and of a kNN vote, from features extracted once.

    Args:
        arguments: ``key=value`` settings of the fast probe; those of the vote have their defaults.
        progress: whether there are progress bars.
    """
    with user_errors():
        cfg, options = parse(arguments, OWN, PROTOCOL)
        task = _load(cfg, **options, progress=progress)
        result = probe_features(task, options["passes"])
        return result, knn_accuracy(task.centre_features, task.validation_features)


if __name__ == "__main__":
    run_cli(probe, sys.argv[1:])
