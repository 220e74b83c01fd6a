"""Optimizers and learning-rate schedules of solo-learn's modules, without the schedules' faults.

solo-learn's own warm-up divides by zero where it is as long as the run. Without a warm-up the
online classifier gets the base rate in place of its own. A warm-up of a fractional number of steps
overshoots the base rate and never comes back to it. Rates that are not scheduled (SimSiam's
predictor) become a ``functools.partial`` in the checkpoint, which then cannot be loaded again.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, MultiStepLR

from solo_margins.losses.checks import require_choice

# Settings in ``optimizer.kwargs``, by ``optimizer.name``.
_OF_TORCH = ("maximize", "foreach", "differentiable", "fused")
_OF_ADAM = ("betas", "eps", "amsgrad", "capturable", *_OF_TORCH)
OPTIMIZER_SETTINGS = {
    "sgd": ("momentum", "dampening", "nesterov", *_OF_TORCH),
    "lars": ("momentum", "dampening", "nesterov", "eta", "eps", "clip_lr", "exclude_bias_n_norm"),
    "adam": _OF_ADAM,
    "adamw": _OF_ADAM,
}

# Values of ``scheduler.name``. solo-learn's others do not work: "reduce" lacks what it watches, and
# "exponential" takes the weight decay for its factor.
SCHEDULES = ("warmup_cosine", "step", "none")


def check_schedule(name: str, decay_steps: Sequence[int] | None) -> None:
    """Raise ``ValueError`` unless there is such a schedule, with the steps that it needs.

    Args:
        name: ``scheduler.name``.
        decay_steps: ``scheduler.lr_decay_steps``.
    """
    require_choice("scheduler.name", name, SCHEDULES)
    if name == "step" and not decay_steps:
        raise ValueError(
            "scheduler.name=step needs scheduler.lr_decay_steps, the epochs after which the rate "
            f"is divided by ten, such as [60,80]; got {decay_steps!r}."
        )


def warmup_cosine_lr(
    step: int, base: float, start: float, minimum: float, warmup: float, total: float
) -> float:
    r"""Return the learning rate at ``step``.

    $$
    \eta(t) = \begin{cases}
    s + (b - s) \min(1, t / (W - 1)) & t < W \\
    m + (b - m) (1 + \cos(\pi (t - W) / (T - W))) / 2 & t \ge W \end{cases}
    $$

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
        warmup_epochs: number of warm-up steps (of epochs, if it is stepped once an epoch).
        max_epochs: number of all steps.
        warmup_start_lr: the first rate.
        eta_min: the last rate.
        unscheduled: indexes of parameter groups that keep their rate.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        warmup_epochs: float,
        max_epochs: float,
        warmup_start_lr: float = 0.0,
        eta_min: float = 0.0,
        unscheduled: Sequence[int] = (),
    ) -> None:
        # The names are those of solo-learn's scheduler, and so of the state in its checkpoints.
        self.warmup_epochs = warmup_epochs
        self.max_epochs = max_epochs
        self.warmup_start_lr = warmup_start_lr
        self.eta_min = eta_min
        self.unscheduled = list(unscheduled)
        super().__init__(optimizer)

    def get_lr(self) -> list[Any]:
        """Return the rate of every parameter group."""
        schedule = (self.warmup_start_lr, self.eta_min, self.warmup_epochs, self.max_epochs)
        rates: list[Any] = []
        for base in self.base_lrs:
            rates.append(warmup_cosine_lr(self.last_epoch, float(base), *schedule))
        for index in self.unscheduled:
            rates[index] = self.base_lrs[index]
        return rates


class DecayAtSteps(MultiStepLR):
    """Divides the learning rates by ten at given steps.

    Args:
        optimizer: the optimizer to schedule.
        steps: when.
        unscheduled: indexes of parameter groups that keep their rate.
    """

    def __init__(
        self, optimizer: Optimizer, steps: Sequence[int], unscheduled: Sequence[int] = ()
    ) -> None:
        self.unscheduled = list(unscheduled)
        super().__init__(optimizer, list(steps), gamma=0.1)

    def get_lr(self) -> list[Any]:
        """Return the rate of every parameter group."""
        rates = list(super().get_lr())
        for index in self.unscheduled:
            rates[index] = self.base_lrs[index]
        return rates


def warmup_cosine(module: Any, optimizer: Optimizer, unscheduled: Sequence[int] = ()) -> Any:
    """Return the schedule ``warmup_cosine`` of a module of solo-learn's, as Lightning takes it."""
    by_step = module.scheduler_interval == "step"
    total = module.trainer.estimated_stepping_batches if by_step else module.max_epochs
    scheduler = WarmupCosineLR(
        optimizer,
        warmup_epochs=module.warmup_epochs * total / module.max_epochs,
        max_epochs=total,
        warmup_start_lr=module.warmup_start_lr,
        eta_min=module.min_lr,
        unscheduled=unscheduled,
    )
    return {"scheduler": scheduler, "interval": module.scheduler_interval, "frequency": 1}


def settings_of_optimizer(name: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in ``optimizer.kwargs`` without nulls and those of other optimizers.

    Composed configurations are merged: a variant that trains with Adam has the data set's momentum.

    Examples:
        >>> settings_of_optimizer("adam", {"momentum": 0.9, "betas": (0.9, 0.99), "eps": None})
        {'betas': (0.9, 0.99)}
    """
    of_others: set[str] = set()
    for other, settings in OPTIMIZER_SETTINGS.items():
        if other != name:
            of_others.update(settings)
    of_others.difference_update(OPTIMIZER_SETTINGS.get(name, ()))
    return {
        key: value for key, value in kwargs.items() if value is not None and key not in of_others
    }


def optimizer_and_schedule(module: Any, groups: list[dict[str, Any]]) -> Any:
    """Return optimizer and schedule of a module of solo-learn's, as Lightning takes them.

    Args:
        module: has the settings as attributes.
        groups: parameter groups; those with ``static_lr`` are not scheduled.
    """
    check_schedule(module.scheduler, module.lr_decay_steps)
    unscheduled = [index for index, group in enumerate(groups) if group.pop("static_lr", False)]
    settings = settings_of_optimizer(module.optimizer, module.extra_optimizer_args)
    optimizer = module._OPTIMIZERS[module.optimizer](
        groups, lr=module.lr, weight_decay=module.weight_decay, **settings
    )
    if module.scheduler == "none":
        return optimizer
    if module.scheduler == "warmup_cosine":
        return [optimizer], [warmup_cosine(module, optimizer, unscheduled)]
    return [optimizer], [DecayAtSteps(optimizer, module.lr_decay_steps, unscheduled)]
