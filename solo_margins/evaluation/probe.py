"""Linear probe of a pretrained backbone on features that are extracted once.

    python -m solo_margins.probe pretrained_feature_extractor=<checkpoint> passes=4

    pretrained_feature_extractor=…  a pretraining checkpoint, or the folder of its run
    passes=4                        augmented passes over the training images; 0: the centre view
    data=…                          images to classify: digits, cifar10, cifar100, stl10,
                                    tinyimagenet, imagenet, imagenet100, folder
    data.train_path=… data.val_path=…
    label_fraction=…                share of the training images of each class
    max_epochs=… optimizer.lr=… optimizer.batch_size=… scheduler.warmup_epochs=… seed=…
    normalize_features=false        true: a BatchNorm before the layer, as in arXiv 2407.12210
    device=auto                     cpu, cuda, cuda:1, mps, …
    extraction_batch_size=256       views that the backbone sees at a time
    results=…                       a file that a line of JSON is added to

The protocol is that of ``linear.yaml``, whose settings apply here as far as they say anything about
a linear layer. By default the images are those of the pretraining. Their size is always that of the
pretraining. docs/evaluation.md explains every setting.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from omegaconf import DictConfig
from torch import nn
from torch.nn import functional as F

from solo_margins.config import setting
from solo_margins.evaluation.features import Features, choose_device, progress_bar
from solo_margins.evaluation.knn import neighbour_figures
from solo_margins.evaluation.task import Task, load_task, parse
from solo_margins.learning_rates import warmup_cosine_lr
from solo_margins.losses.checks import require_choice, require_flag
from solo_margins.methods.linear import LinearClassifier, on_normalized_features

OWN = {"passes": 4}

# Settings of ``linear.yaml`` that apply to a layer on frozen features.
PROTOCOL = (
    "max_epochs",
    "normalize_features",
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
    normalize_features: bool = False


def train_linear_layer(
    train: Features, cfg: DictConfig, device: str | torch.device = "auto", progress: bool = True
) -> nn.Module:
    """Return a linear layer trained on features by cross-entropy, in evaluation mode.

    Every epoch shuffles the images and leaves an incomplete last batch out; epoch e sees the pass
    e mod the number of passes.

    Args:
        train: features of one or more passes over the training images.
        cfg: a linear configuration: ``data.num_classes``, ``max_epochs``, ``optimizer``,
            ``scheduler`` (warmup_cosine), ``seed`` and ``normalize_features``. Its learning rate is
            taken as it is; solo-learn scales it by the batch size / 256 when it parses a
            configuration.
        device: where the layer is trained.
        progress: whether there is a progress bar.

    Raises:
        ValueError: there are fewer images than in a batch.
    """
    batch_size = cfg.optimizer.batch_size
    steps = len(train) // batch_size
    if steps == 0:
        raise ValueError(
            f"optimizer.batch_size={batch_size} exceeds the {len(train)} training images: "
            "lower it, or raise label_fraction if it is below 1."
        )
    device = choose_device(device)
    try:
        values, labels = train.values.to(device), train.labels.to(device)
    except torch.cuda.OutOfMemoryError:
        raise ValueError(
            f"The features need {train.values.nbytes / 1e9:.1f} GB, which device={device} does not "
            "have: lower passes or label_fraction, or use device=cpu."
        ) from None
    with torch.random.fork_rng([]):
        torch.manual_seed(cfg.seed)
        linear = nn.Linear(values.shape[-1], cfg.data.num_classes)
    layer = on_normalized_features(linear, cfg).to(device)
    settings: Any = cfg.optimizer
    optimizer = LinearClassifier._OPTIMIZERS[settings.name](
        layer.parameters(), lr=settings.lr, weight_decay=settings.weight_decay, **settings.kwargs
    )
    start, minimum = cfg.scheduler.warmup_start_lr, cfg.scheduler.min_lr
    warmup, total = cfg.scheduler.warmup_epochs * steps, cfg.max_epochs * steps
    taken = 0
    shuffle = torch.Generator().manual_seed(cfg.seed)
    for epoch in progress_bar(progress, iterable=range(cfg.max_epochs), desc="epochs"):
        order = torch.randperm(len(train), generator=shuffle).to(device)
        for rows in order.split(batch_size)[:steps]:
            for group in optimizer.param_groups:
                group["lr"] = warmup_cosine_lr(taken, settings.lr, start, minimum, warmup, total)
            optimizer.zero_grad()
            logits = layer(values[epoch % len(values)][rows])
            F.cross_entropy(logits, labels[rows]).backward()
            optimizer.step()
            taken += 1
    return layer.eval().requires_grad_(False)


def layer_accuracy(layer: nn.Module, features: Features) -> tuple[float, float]:
    """Return top-1 and top-5 accuracy in percent on the first pass of some features."""
    device = next(layer.parameters()).device
    rankings = []
    with torch.no_grad():
        for values in features.values[0].split(8192):
            logits = layer(values.to(device))
            rankings.append(logits.topk(min(5, logits.shape[1])).indices.cpu())
    correct = torch.cat(rankings) == features.labels[:, None]
    top1 = correct[:, :1].any(dim=1).float().mean()
    top5 = correct.any(dim=1).float().mean()
    return 100 * top1.item(), 100 * top5.item()


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
        ValueError: the configuration cannot be run; the message says what is wrong.
    """
    return probe_features(load_probe(cfg, passes, **extraction), passes)


def load_probe(cfg: DictConfig, passes: Any, **extraction: Any) -> Task:
    """Return backbone and images of a configuration, after checking what a linear probe needs.

    Raises:
        ValueError: the configuration cannot be run; the message says what is wrong.
    """
    if isinstance(passes, bool) or not isinstance(passes, int) or passes < 0:
        raise ValueError(f"passes must be a whole number of at least 0, got {passes!r}.")
    require_choice("scheduler.name", cfg.scheduler.name, ("warmup_cosine",))
    require_flag("normalize_features", setting(cfg, "normalize_features", False))
    return load_task(cfg, **extraction)


def probe_features(task: Task, passes: int = 4) -> ProbeResult:
    """Train a linear layer on features of a task and return how well it classifies."""
    began = time.perf_counter()
    validation = task.validation_features
    train = task.train_features(passes)
    extracted = time.perf_counter()
    layer = train_linear_layer(train, task.cfg, task.device, task.progress)
    acc1, acc5 = layer_accuracy(layer, validation)
    return ProbeResult(
        acc1=acc1,
        acc5=acc5,
        passes=passes,
        epochs=task.cfg.max_epochs,
        train_images=len(train),
        validation_images=len(validation),
        num_classes=task.cfg.data.num_classes,
        num_features=train.values.shape[-1],
        extraction_seconds=extracted - began,
        training_seconds=time.perf_counter() - extracted,
        normalize_features=setting(task.cfg, "normalize_features", False),
    )


def probe(arguments: Sequence[str], progress: bool = True) -> ProbeResult:
    """Return and print the accuracy of the checkpoint that ``key=value`` arguments name."""
    began = time.perf_counter()
    cfg, options = parse(arguments, OWN, PROTOCOL)
    task = load_probe(cfg, **options, progress=progress)
    result = probe_features(task, options["passes"])
    print(
        f"Fast linear probe ({protocol(result)}): "
        f"acc1 = {result.acc1:.2f} %, acc5 = {result.acc5:.2f} %\n"
        f"{result.train_images} + {result.validation_images} images, {result.num_classes} classes: "
        f"{result.extraction_seconds:.1f} s for features, {result.training_seconds:.1f} s for "
        "training"
    )
    figures = {"linear_acc1": result.acc1, "linear_acc5": result.acc5}
    task.record("probe", {"passes": result.passes}, figures, time.perf_counter() - began)
    return result


def protocol(result: ProbeResult) -> str:
    """Return what was trained on what, for a printed line."""
    views = f"{result.passes} augmented passes" if result.passes else "centre view"
    normalized = ", normalised features" if result.normalize_features else ""
    return f"{result.epochs} epochs, {views}{normalized}"


def linear_and_knn(
    arguments: Sequence[str], progress: bool = True
) -> tuple[ProbeResult, dict[str, float]]:
    """Return the accuracies of a linear probe, and those of kNN, of features extracted once.

    Args:
        arguments: ``key=value`` settings of the fast probe; those of the vote have their defaults.
        progress: whether there are progress bars.
    """
    cfg, options = parse(arguments, OWN, PROTOCOL)
    task = load_probe(cfg, **options, progress=progress)
    return probe_features(task, options["passes"]), neighbour_figures(task)
