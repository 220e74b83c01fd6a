"""Takes back what a training step changes besides weights: statistics, queues, memories."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Undo:
    """A copy of a method's buffers from before a step.

    Running statistics and queues take up what a batch shows while it passes, not with the update:
    one that is not finite would stay in them.

    Args:
        module: the method.
        earlier: a copy whose memory can be used again.
    """

    def __init__(self, module: Any, earlier: Undo | None = None) -> None:
        self._buffers: dict[str, Tensor] = dict(module.named_buffers())
        copies = {} if earlier is None else earlier._copies
        self._copies: dict[str, Tensor] = {}
        for name, buffer in self._buffers.items():
            copy = copies.get(name)
            fits = copy is not None and copy.shape == buffer.shape and copy.dtype == buffer.dtype
            if copy is not None and fits and copy.device == buffer.device:
                self._copies[name] = copy.copy_(buffer)
            else:
                self._copies[name] = buffer.detach().clone()
        # The features that the online kNN compares with grow as lists.
        neighbours = vars(module.knn) if hasattr(module, "knn") else {}
        lists = [value for value in neighbours.values() if isinstance(value, list)]
        self._lists = [(values, len(values)) for values in lists]

    @torch.no_grad()
    def apply(self) -> None:
        """Write the copies back."""
        for name, buffer in self._buffers.items():
            buffer.copy_(self._copies[name])
        for values, length in self._lists:
            del values[length:]
