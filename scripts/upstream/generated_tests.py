"""Tests of exported losses and methods, in the manner of solo-learn's own."""

from __future__ import annotations

import inspect
from string import Template
from typing import Any

import solo_margins.losses
from upstream.source import template

INPUTS = {
    "query": "torch.randn(b, f).requires_grad_()",
    "key": "torch.randn(b, f)",
    "p": "torch.randn(b, f).requires_grad_()",
    "nn": "torch.randn(b, f)",
    "z": "torch.randn(b, f).requires_grad_()",
    "indexes": "torch.arange(b // 2).repeat(2)",
    "queue": "F.normalize(torch.randn(f, 64), dim=0)",
    "prototypes": "torch.randn(10, f)",
    "assignments": "torch.arange(b) % 10",
    "lower": "0.3",
    "upper": "0.6",
}
"""What a test gives to a parameter of a loss, by its name."""

LIKE = {
    "mocov3_margin_loss_func": "mocov3_loss_func",
    "simclr_margin_loss_func": "simclr_loss_func",
    "byol_curv_loss_func": "byol_loss_func",
    "mocov2plus_margin_loss_func": "mocov2plus_loss_func",
    "nnclr_margin_loss_func": "nnclr_loss_func",
    "simsiam_curv_loss_func": "simsiam_loss_func",
}
"""Losses that equal one of solo-learn's without margins, on unit vectors."""

EXTRA: dict[str, dict[str, Any]] = {
    "mocov2plus": {"queue_size": 16},
    "nnclr": {"queue_size": 16},
    "nnsiam": {"queue_size": 16},
    "nnbyol": {"queue_size": 16},
    "deepclusterv2": {"num_prototypes": [4, 4], "kmeans_iters": 2},
    "wmse": {"whitening_iters": 1, "whitening_size": 8, "whitening_eps": 0.01},
}
"""What a method of solo-learn needs besides in a test."""


def method_test(name: str, cls: str, parent: str, parent_cls: str) -> str:
    """Return a test of a method."""
    extra = "".join(f'        "{k}": {v!r},\n' for k, v in EXTRA.get(parent, {}).items())
    return Template(template("method_test")).substitute(
        name=name, cls=cls, parent=parent, parent_cls=parent_cls, extra=extra
    )


def loss_test(function: str) -> str:
    """Return the tests of a loss: it falls, and without margins it is solo-learn's own loss."""
    parameters = inspect.signature(getattr(solo_margins.losses, function)).parameters
    required = [name for name, p in parameters.items() if p.default is p.empty]
    inputs = "".join(f"    {name} = {INPUTS[name]}\n" for name in required)
    names = {
        "name": function.removesuffix("_func"),
        "function": function,
        "trained": next(name for name in required if "requires_grad" in INPUTS[name]),
        "parent": LIKE.get(function, ""),
        "imported": ", ".join(sorted(filter(None, (function, LIKE.get(function))))),
        "units": ", ".join(_as_unit(name) for name in required),
    }
    arguments, settings = ", ".join(required), ""
    if "margins" in parameters:
        settings = "    margins = Margins(angular=0.1, subtractive=0.2, positive_scale=2.0)\n"
        arguments += ", margins=margins"
    text = Template(template("loss_test")).substitute(
        names, inputs=inputs + settings, call=f"{function}({arguments})"
    )
    if function in LIKE:
        without_margins = Template(template("loss_without_margins_test"))
        text += "\n\n" + without_margins.substitute(names, inputs=inputs)
    return text


def _as_unit(name: str) -> str:
    """Return how a test hands an input on; some of solo-learn's losses want unit vectors."""
    return f"F.normalize({name}, dim=1)" if "torch.randn(b" in INPUTS[name] else name
