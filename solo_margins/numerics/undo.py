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
        self._neighbours = getattr(module, "knn", None)
        held = {} if self._neighbours is None else vars(self._neighbours)
        names = ("train_features", "train_targets", "test_features", "test_targets")
        self._lengths = {n: len(held[n]) for n in names if isinstance(held.get(n), list)}

    @torch.no_grad()
    def apply(self) -> None:
        """Write the copies back."""
        for name, buffer in self._buffers.items():
            buffer.copy_(self._copies[name])
        for name, length in self._lengths.items():
            # The metric may have put another list in its place meanwhile.
            del getattr(self._neighbours, name)[length:]
