"""Refusing second derivatives, which gradients made in the forward pass cannot have."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


def differentiable_once(backward: Callable[..., Result]) -> Callable[..., Result]:
    """Make a backward pass raise under ``create_graph=True`` instead of giving a constant.

    torch's own ``once_differentiable`` stays silent where the incoming gradient is a constant: a
    penalty on the gradient would then train nothing.
    """

    @functools.wraps(backward)
    def wrapped(ctx: Any, *gradients: Any) -> Result:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "losses with margins have first derivatives only: "
                "create_graph=True is not supported"
            )
        return backward(ctx, *gradients)

    return wrapped
