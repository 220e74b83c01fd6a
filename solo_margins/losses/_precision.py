"""Keeping a loss in float32 or better, whatever the code around it runs in."""

import functools
from collections.abc import Callable
from typing import ParamSpec

import torch
from torch import Tensor

from solo_margins.losses._directions import unit_vectors

Arguments = ParamSpec("Arguments")


def full_precision(loss: Callable[Arguments, Tensor]) -> Callable[Arguments, Tensor]:
    """Run a loss with autocast off: near cos = 1 half precision cannot tell angles apart."""

    @functools.wraps(loss)
    def wrapped(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Tensor:
        tensors = (value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
        device = next((tensor.device.type for tensor in tensors), "cpu")
        if not torch.is_autocast_enabled(device):
            return loss(*args, **kwargs)
        with torch.autocast(device, enabled=False):
            return loss(*args, **kwargs)

    return wrapped


def directions(*embeddings: Tensor) -> tuple[Tensor, ...]:
    """Return unit vectors of all embeddings, in one common dtype."""
    units = [unit_vectors(x) for x in embeddings]
    common = torch.float64 if any(u.dtype == torch.float64 for u in units) else torch.float32
    return tuple(u.to(common) for u in units)
