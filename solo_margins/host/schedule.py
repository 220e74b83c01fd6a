"""Learning rates: linear warm-up followed by a cosine, in closed form."""

from __future__ import annotations

import math
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler


def warmup_cosine_lr(
    step: int, base: float, start: float, minimum: float, warmup: float, total: float
) -> float:
    r"""Return the learning rate at ``step``.

    .. math:: \eta(t) = \begin{cases}
        s + (b - s) \min(1, t / (W - 1)) & t < W \\
        m + (b - m) (1 + \cos(\pi (t - W) / (T - W))) / 2 & t \ge W \end{cases}

    The rate after a warm-up of one step is the base rate, and without a warm-up the cosine starts
    from the base rate of each parameter group at once.

    Args:
        step: number t of steps taken so far.
        base: base rate b of the parameter group.
        start: rate s of the first warm-up step.
        minimum: rate m at the end.
        warmup: number W of warm-up steps; a fraction is allowed.
        total: number T of steps altogether.

    >>> [round(warmup_cosine_lr(t, 1.0, 0.1, 0.0, 2, 6), 3) for t in range(7)]
    [0.1, 1.0, 1.0, 0.854, 0.5, 0.146, 0.0]
    """
    if step < warmup:
        progress = min(1.0, step / (warmup - 1)) if warmup > 1 else 0.0
        return start + (base - start) * progress
    if total <= warmup:
        return base
    progress = min(1.0, (step - max(0.0, warmup)) / (total - max(0.0, warmup)))
    return minimum + (base - minimum) * (1 + math.cos(math.pi * progress)) / 2


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

    def get_lr(self) -> list[float]:  # type: ignore[override]
        """Return the learning rate of every parameter group at the current step."""
        return scheduled_rates(self)


def scheduled_rates(self: Any) -> list[float]:
    """Return what :func:`warmup_cosine_lr` says for every parameter group of a scheduler."""
    return [
        warmup_cosine_lr(
            self.last_epoch,
            base,
            self.warmup_start_lr,
            self.eta_min,
            self.warmup_epochs,
            self.max_epochs,
        )
        for base in self.base_lrs
    ]


class StaticRates(LRScheduler):
    """A scheduler that leaves some parameter groups alone; comes before the scheduler's class."""

    static_rates: dict[int, float]

    def get_lr(self) -> list[Any]:
        """Return the scheduled rates, and those that are not scheduled."""
        scheduled = list(super().get_lr())
        for index, rate in self.static_rates.items():
            scheduled[index] = rate
        return scheduled


def keep_rates_static(scheduler: LRScheduler, rates: dict[int, float]) -> None:
    """Exempt parameter groups, given as index to rate, from a scheduler.

    The scheduler becomes an instance of a subclass and the rates plain data in its state, so that a
    checkpoint can be read with ``weights_only``.
    """
    parent = type(scheduler)
    vars(scheduler).pop("get_lr", None)
    scheduler.static_rates = rates  # type: ignore[attr-defined]
    scheduler.__class__ = type(f"Static{parent.__name__}", (StaticRates, parent), {})
    # The first rates were set while the scheduler was constructed.
    for index, rate in rates.items():
        scheduler.optimizer.param_groups[index]["lr"] = rate
