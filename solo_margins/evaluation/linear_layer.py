"""A linear layer trained on features in memory, step by step as a linear probe does it."""

from typing import Any

import torch
from omegaconf import DictConfig
from torch import nn
from torch.nn import functional as F

from solo_margins import host
from solo_margins.evaluation.features import Features, choose_device, progress_bar
from solo_margins.host.repairs.warmup_cosine import warmup_cosine_lr


def train_linear_layer(
    train: Features, cfg: DictConfig, device: str | torch.device = "auto", progress: bool = True
) -> nn.Linear:
    """Return a linear layer trained on features by cross-entropy.

    Every epoch shuffles the images and leaves an incomplete last batch out; epoch e sees the pass
    e mod the number of passes.

    Args:
        train: features of one or more passes over the training images.
        cfg: a linear configuration: ``data.num_classes``, ``max_epochs``, ``optimizer``,
            ``scheduler`` (warmup_cosine) and ``seed``. Its learning rate is taken as it is;
            solo-learn scales it by the batch size / 256 when it parses a configuration.
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
        torch.manual_seed(cfg.seed)
        layer = nn.Linear(values.shape[-1], cfg.data.num_classes).to(device)
    make_optimizer: Any = host.LinearModel._OPTIMIZERS[cfg.optimizer.name]
    rate, decay = cfg.optimizer.lr, cfg.optimizer.weight_decay
    optimizer = make_optimizer(
        layer.parameters(), lr=rate, weight_decay=decay, **cfg.optimizer.kwargs
    )
    start, minimum = cfg.scheduler.warmup_start_lr, cfg.scheduler.min_lr
    warmup, total = cfg.scheduler.warmup_epochs * steps, cfg.max_epochs * steps
    taken = 0
    shuffle = torch.Generator().manual_seed(cfg.seed)
    for epoch in progress_bar(progress, iterable=range(cfg.max_epochs), desc="epochs"):
        order = torch.randperm(len(train), generator=shuffle).to(device)
        for rows in order.split(batch_size)[:steps]:
            for group in optimizer.param_groups:
                group["lr"] = warmup_cosine_lr(taken, rate, start, minimum, warmup, total)
            optimizer.zero_grad()
            logits = layer(values[epoch % len(values)][rows])
            F.cross_entropy(logits, labels[rows]).backward()
            optimizer.step()
            taken += 1
    return layer.requires_grad_(False)


def layer_accuracy(layer: nn.Linear, features: Features) -> tuple[float, float]:
    """Return top-1 and top-5 accuracy in percent on the first pass of some features."""
    best = min(5, layer.out_features)
    device = layer.weight.device
    with torch.no_grad():
        rankings = [layer(v.to(device)).topk(best).indices for v in features.values[0].split(8192)]
    correct = torch.cat(rankings).cpu() == features.labels[:, None]
    top1, top5 = (100 * correct[:, :k].any(dim=1).float().mean().item() for k in (1, 5))
    return top1, top5
