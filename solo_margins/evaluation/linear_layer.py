"""A linear layer trained on features in memory, step by step as a linear probe does it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from solo_margins import host
from solo_margins.evaluation.features import SECONDS_BETWEEN_LINES, Features, choose_device
from solo_margins.host.repairs.warmup_cosine import warmup_cosine_lr


@dataclass(frozen=True)
class LayerSettings:
    """How a linear layer is trained; the defaults are the margins paper's (appendix B)."""

    epochs: int = 100
    batch_size: int = 256
    lr: float = 1.0
    """Rate after warming up. Commands scale it by the batch size / 256, as solo-learn does."""
    weight_decay: float = 0.0
    optimizer: str = "sgd"
    optimizer_kwargs: dict[str, Any] = field(default_factory=lambda: {"momentum": 0.9})
    warmup_epochs: float = 0.0
    warmup_start_lr: float = 0.0
    min_lr: float = 0.0
    seed: int = 5

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number above 0, got {value!r}.")


def train_linear_layer(
    train: Features,
    num_classes: int,
    settings: LayerSettings | None = None,
    device: str | torch.device = "auto",
    progress: bool = True,
) -> nn.Linear:
    """Return a linear layer trained on features by cross-entropy.

    Every epoch shuffles the images and leaves an incomplete last batch out; epoch e sees the pass
    e mod the number of passes.

    Args:
        train: features of one or more passes over the training images.
        num_classes: outputs of the layer.
        settings: the paper's protocol where none are given.
        device: where the layer is trained.
        progress: whether there is a progress bar.

    Raises:
        ValueError: there are fewer images than in a batch.
    """
    settings = settings or LayerSettings()
    steps = len(train) // settings.batch_size
    if steps == 0:
        raise ValueError(
            f"optimizer.batch_size={settings.batch_size} exceeds the {len(train)} training images: "
            "lower it, or raise label_fraction."
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
        torch.manual_seed(settings.seed)
        layer = nn.Linear(values.shape[-1], num_classes).to(device).requires_grad_(False)
    make_optimizer: Any = host.LinearModel._OPTIMIZERS[settings.optimizer]
    optimizer = make_optimizer(
        layer.parameters(),
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        **settings.optimizer_kwargs,
    )
    shuffle = torch.Generator().manual_seed(settings.seed)
    taken, total = 0, steps * settings.epochs
    for epoch in _epochs(settings.epochs, progress):
        order = torch.randperm(len(train), generator=shuffle).to(device)
        for rows in order.split(settings.batch_size)[:steps]:
            for group in optimizer.param_groups:
                group["lr"] = warmup_cosine_lr(
                    taken,
                    settings.lr,
                    settings.warmup_start_lr,
                    settings.min_lr,
                    settings.warmup_epochs * steps,
                    total,
                )
            _set_gradient(layer, values[epoch % len(values)][rows], labels[rows])
            optimizer.step()
            taken += 1
    return layer


def _set_gradient(layer: nn.Linear, features: Tensor, labels: Tensor) -> None:
    """Write the gradient of the mean cross-entropy, which autograd would only find more slowly."""
    slope = layer(features).softmax(dim=1)
    slope[torch.arange(len(labels), device=labels.device), labels] -= 1
    slope /= len(labels)
    layer.weight.grad = slope.T @ features
    layer.bias.grad = slope.sum(dim=0)


def _epochs(number: int, progress: bool) -> Any:
    interval = 0.1 if sys.stderr.isatty() else SECONDS_BETWEEN_LINES
    return tqdm(
        range(number), desc="epochs", unit="epoch", mininterval=interval, disable=not progress
    )


@torch.no_grad()
def layer_accuracy(layer: nn.Linear, features: Features) -> tuple[float, float]:
    """Return top-1 and top-5 accuracy in percent on the first pass of some features."""
    best = min(5, layer.out_features)
    hits = torch.zeros(2)
    for values, labels in zip(
        features.values[0].split(8192), features.labels.split(8192), strict=True
    ):
        ranking = layer(values.to(layer.weight.device)).topk(best).indices.cpu()
        correct = ranking == labels[:, None]
        hits += torch.tensor([correct[:, :1].sum().item(), correct.sum().item()])
    top1, top5 = (100 * hits / len(features)).tolist()
    return top1, top5
