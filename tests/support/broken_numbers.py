"""Backbones whose features or gradients are not finite at chosen calls, as registered networks."""

import os

import torch
from torch import nn


class _Spoil(torch.autograd.Function):
    """The identity, whose gradient is not finite."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * float("inf")


class Hiccup(nn.Module):
    """A small network that is not finite at some calls in training.

    Args:
        calls: numbers of the calls, from 0 on; two views are two calls a batch.
        kind: ``"nan"``, ``"inf"`` or ``"gradient"``.
        rank: the only process that it happens in, or None for every one.
    """

    num_features = 8

    def __init__(self, calls=(), kind="nan", rank=None):
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3, stride=2, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.calls, self.kind, self.rank = set(calls), kind, rank
        self.call = 0

    def forward(self, x):
        happens = self.training and self.call in self.calls and torch.is_grad_enabled()
        if self.rank is not None and int(os.environ.get("LOCAL_RANK", "0")) != self.rank:
            happens = False
        if self.training and torch.is_grad_enabled():
            self.call += 1
        if happens and self.kind != "gradient":
            # In front of the normalisation, whose statistics take it up.
            x = x * float(self.kind)
        features = torch.relu(self.norm(self.convolution(x))).mean(dim=(2, 3))
        return _Spoil.apply(features) if happens and self.kind == "gradient" else features


def register(name="hiccup", **settings):
    """Make the network known to solo-learn."""
    from solo.methods.base import BaseMethod

    BaseMethod._BACKBONES[name] = lambda method=None, **kwargs: Hiccup(
        **{**settings, **{key: value for key, value in kwargs.items() if key in ("calls", "kind")}}
    )
