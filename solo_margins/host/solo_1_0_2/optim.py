"""Optimizers and schedules by name."""

from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, MultiStepLR

from solo_margins.host.repairs.warmup_cosine import scheduled_rates
from solo_margins.host.solo_1_0_2.limits import not_offered

OPTIMIZERS: dict[str, Any] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "lars": not_offered("optimizer.name=lars"),
}


class WarmupCosineLR(LRScheduler):
    """Linear warm-up and cosine decay of every parameter group's learning rate.

    Args:
        optimizer: the optimizer to schedule.
        warmup_epochs: number of warm-up steps (or epochs, whatever ``step`` is called for).
        max_epochs: number of steps altogether.
        warmup_start_lr: learning rate of the first warm-up step.
        eta_min: learning rate at the end.
        last_epoch: index of the last step when resuming.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        warmup_epochs: float,
        max_epochs: float,
        warmup_start_lr: float = 0.0,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        self.warmup_epochs = warmup_epochs
        self.max_epochs = max_epochs
        self.warmup_start_lr = warmup_start_lr
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    get_lr = scheduled_rates  # type: ignore[assignment]


def configure(model: Any, groups: Any, factor: float = 1) -> Any:
    """Return optimizer and schedule of a model, as Lightning takes them.

    Args:
        model: whose ``cfg`` names them.
        groups: groups of parameters.
        factor: of all learning rates in the configuration.
    """
    settings, schedule = model.cfg.optimizer, model.cfg.scheduler
    optimizer = OPTIMIZERS[settings.name](
        groups, lr=settings.lr * factor, weight_decay=settings.weight_decay, **settings.kwargs
    )
    if schedule.name == "none":
        return optimizer
    if schedule.name == "step":
        return [optimizer], [MultiStepLR(optimizer, schedule.lr_decay_steps, gamma=0.1)]
    by_step = schedule.interval == "step"
    total = model.trainer.estimated_stepping_batches if by_step else model.cfg.max_epochs
    first = schedule.warmup_start_lr if schedule.warmup_epochs > 0 else settings.lr
    scheduler = WarmupCosineLR(
        optimizer,
        warmup_epochs=schedule.warmup_epochs * total / model.cfg.max_epochs,
        max_epochs=total,
        warmup_start_lr=first * factor,
        eta_min=schedule.min_lr * factor,
    )
    return [optimizer], [{"scheduler": scheduler, "interval": schedule.interval}]
