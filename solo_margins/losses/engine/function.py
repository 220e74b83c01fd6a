"""Losses with gradients from the forward pass and second derivatives from the plain form."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def plain_gradients(
    plain: Callable[..., Tensor],
    tensors: Sequence[Tensor],
    needed: Sequence[bool],
    upstream: Tensor,
) -> list[Tensor | None]:
    """Return the gradients of the plain form, which can be differentiated once more."""
    # As views, so that a tensor which is passed twice gets a gradient for each position.
    inputs = [tensor.view_as(tensor) for tensor in tensors]
    sources = [x for x, is_needed in zip(inputs, needed, strict=True) if is_needed]
    gradients = iter(torch.autograd.grad(plain(*inputs), sources, upstream, create_graph=True))
    return [next(gradients) if is_needed else None for is_needed in needed]


class EngineLoss(torch.autograd.Function):
    """A scalar loss of tensors, differentiable any number of times.

    ``EngineLoss.apply(engine, plain, *tensors)`` takes two functions of the tensors. The engine
    returns the loss and one gradient or None for each tensor; ``needed`` tells which are required.
    The plain form returns the loss by autograd; it runs where gradients are differentiated.
    """

    @staticmethod
    def forward(
        ctx: Any, engine: Callable[..., Any], plain: Callable[..., Tensor], *tensors: Tensor
    ) -> Tensor:
        """Return the engine's loss and keep its gradients."""
        ctx.plain = plain
        loss, gradients = engine(*tensors, needed=ctx.needs_input_grad[2:])
        ctx.save_for_backward(*tensors, *gradients)
        return loss

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Return the engine's gradients, the plain form's under ``create_graph=True``."""
        needed = ctx.needs_input_grad[2:]
        tensors, gradients = ctx.saved_tensors[: len(needed)], ctx.saved_tensors[len(needed) :]
        if torch.is_grad_enabled():
            return None, None, *plain_gradients(ctx.plain, tensors, needed, upstream)
        return None, None, *(None if g is None else g * upstream for g in gradients)
