"""Counts operators and host synchronisations of a computation, which a GPU pays for, on any device.

On a GPU an operator that is not a view launches at least one kernel, and one that gives the host a
number, or a shape that depends on numbers, makes it wait for the device.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

# What reads numbers on the host, or makes shapes of them.
WAITING = (
    "_local_scalar_dense",
    "_unique2",
    "equal",
    "is_nonzero",
    "item",
    "masked_select",
    "nonzero",
    "unique_consecutive",
    "unique_dim",
)
# What is not a view, but computes nothing either.
FREE = ("alias", "detach", "empty", "empty_like", "new_empty")


class Launches(TorchDispatchMode):
    """Counts, by name, the operators inside its block.

    Attributes:
        operators: those that compute something.
        waits: those that make the host wait for a device.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operators: Counter[str] = Counter()
        self.waits: Counter[str] = Counter()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run and count an operator."""
        name = function.overloadpacket.__name__
        if name in WAITING or _has_mask(name, args):
            self.waits[name] += 1
        elif not function.is_view and name not in FREE:
            self.operators[name] += 1
        return function(*args, **(kwargs or {}))


def _has_mask(name: str, arguments: Any) -> bool:
    """Return whether an index is a mask, of which the number of entries is read."""
    if name != "index":
        return False
    return any(x is not None and x.dtype in (torch.bool, torch.uint8) for x in arguments[1])


def launches_of(loss: Callable[[Tensor], Tensor], x: Tensor) -> Launches:
    """Return the counts of a loss of ``x``, forward and backward."""
    x = x.detach().clone().requires_grad_()
    with Launches() as counted:
        loss(x).backward()
    return counted
