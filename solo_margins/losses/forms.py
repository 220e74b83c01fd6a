"""Chooses the form of a loss: the plain one inside ``torch.compile``, the engine elsewhere.

The functions are those of :mod:`solo_margins.losses.plain`; the engine's also take ``tile_size``.
Both compute in float32 or better, whatever autocast says: near cos = 1 half precision cannot tell
angles apart.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch

from solo_margins.losses import plain
from solo_margins.losses.checks import is_compiling
from solo_margins.losses.engine import losses as engine


def _autocast_is_on(device: str) -> bool:
    """Return whether autocast is on for a type of device, such as ``"cpu"``."""
    try:
        return torch.is_autocast_enabled(device)
    except TypeError:  # before torch 2.4
        return torch.is_autocast_cpu_enabled() if device == "cpu" else torch.is_autocast_enabled()


def _either(name: str) -> Callable[..., Any]:
    plain_form, engine_form = getattr(plain, name), getattr(engine, name)

    @functools.wraps(plain_form)
    def loss(first: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            kwargs.pop("tile_size", None)
            return plain_form(first, *args, **kwargs)
        if not _autocast_is_on(first.device.type):
            return engine_form(first, *args, **kwargs)
        with torch.autocast(first.device.type, enabled=False):
            return engine_form(first, *args, **kwargs)

    return loss


query_key = _either("query_key")
same_id = _either("same_id")
queue = _either("queue")
prototypes = _either("prototypes")
positives_only = _either("positives_only")
polarization = _either("polarization")
