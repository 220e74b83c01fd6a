"""A warm-up as long as the run divides by zero. `warmup_epochs=0` overwrites the online
classifier's learning rate with the base rate. A warm-up of a fractional number of steps
overshoots the base rate and never comes back to it.
"""

import math
from typing import Any

from solo_margins.host.changes import Replace


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


def scheduled_rates(self: Any) -> list[float]:
    """Return what :func:`warmup_cosine_lr` says for every parameter group of a scheduler."""
    schedule = (self.warmup_start_lr, self.eta_min, self.warmup_epochs, self.max_epochs)
    return [warmup_cosine_lr(self.last_epoch, base, *schedule) for base in self.base_lrs]


CHANGES = (Replace("utils.lr_scheduler", "LinearWarmupCosineAnnealingLR.get_lr", scheduled_rates),)
