"""SimSiam's checkpoints hold a `functools.partial` and cannot be loaded again."""

import functools
from typing import Any

from torch.optim.lr_scheduler import LRScheduler

from solo_margins.host.changes import Wrap


class StaticRates(LRScheduler):
    """A scheduler that leaves some parameter groups alone; comes before the scheduler's class."""

    static_rates: dict[int, float]

    def get_lr(self) -> list[Any]:
        """Return the scheduled rates, and those that are not scheduled."""
        scheduled = list(super().get_lr())
        for index, rate in self.static_rates.items():
            scheduled[index] = rate
        return scheduled


def keep_static_rates_as_data(original: Any, self: Any) -> Any:
    """Keep learning rates that are not scheduled as numbers in the scheduler's state.

    The scheduler becomes an instance of a subclass, so that a checkpoint can be read with
    ``weights_only``.
    """
    configured = original(self)
    for entry in configured[1] if isinstance(configured, tuple) else ():
        scheduler = entry["scheduler"] if isinstance(entry, dict) else entry
        held = vars(scheduler).get("get_lr")
        if isinstance(held, functools.partial):
            del scheduler.get_lr
            indexes = held.keywords["param_group_indexes"]
            rates = held.keywords["lrs_to_replace"]
            scheduler.static_rates = dict(zip(indexes, rates, strict=True))
            parent = type(scheduler)
            scheduler.__class__ = type(f"Static{parent.__name__}", (StaticRates, parent), {})
            # The first rates were set while the scheduler was constructed.
            for index, rate in scheduler.static_rates.items():
                scheduler.optimizer.param_groups[index]["lr"] = rate
    return configured


CHANGES = (Wrap("methods.base", "BaseMethod.configure_optimizers", keep_static_rates_as_data),)
