"""Keeping a loss in float32 or better and as it is written, whatever the code around it does."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from solo_margins.losses._directions import unit_vectors

Loss = TypeVar("Loss", bound="Callable[..., Any]")

# torch.compile unrolls the tiles into code that is up to ten times slower than the hand-written
# passes. The public torch.compiler.disable would import the compiler together with the losses.
leave_uncompiled: Callable[..., Callable[..., Any]] = getattr(
    torch, "_disable_dynamo", lambda function: function
)


def full_precision(loss: Loss) -> Loss:
    """Run a loss with autocast off and uncompiled.

    Near cos = 1 half precision cannot tell angles apart.
    """

    @functools.wraps(loss)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        tensors = (value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
        device = next((tensor.device.type for tensor in tensors), "cpu")
        if not _autocast_is_on(device):
            return loss(*args, **kwargs)
        with torch.autocast(device, enabled=False):
            return loss(*args, **kwargs)

    return cast(Loss, functools.wraps(loss)(leave_uncompiled(wrapped)))


def _autocast_is_on(device: str) -> bool:
    """Tell whether operations on this kind of device, such as ``"cpu"``, are autocast."""
    try:
        return torch.is_autocast_enabled(device)
    except TypeError:  # before torch 2.4 there is a function for CPUs, and one without argument
        return torch.is_autocast_cpu_enabled() if device == "cpu" else torch.is_autocast_enabled()


def directions(*embeddings: Tensor) -> tuple[Tensor, ...]:
    """Return unit vectors of all embeddings, in one common dtype."""
    units = [unit_vectors(x) for x in embeddings]
    common = torch.float64 if any(u.dtype == torch.float64 for u in units) else torch.float32
    return tuple(u.to(common) for u in units)
