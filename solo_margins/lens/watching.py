"""Sees what a method compares while it takes one training step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from solo_margins import losses
from solo_margins.host.training_step import losses_in, step_with_losses
from solo_margins.losses.capture import Captured, capture

COUNTERPARTS: dict[str, Callable[..., Tensor]] = {
    "simclr_loss_func": losses.simclr_margin_loss_func,
    "mocov3_loss_func": losses.mocov3_margin_loss_func,
    "mocov2plus_loss_func": losses.mocov2plus_margin_loss_func,
    "nnclr_loss_func": losses.nnclr_margin_loss_func,
    "byol_loss_func": losses.byol_curv_loss_func,
    "simsiam_loss_func": losses.simsiam_curv_loss_func,
    "wmse_loss_func": losses.byol_curv_loss_func,
}
"""solo-learn's losses and those of ours that equal them at default margins."""

NOT_OURS = ("simplified",)
"""Arguments of solo-learn's losses that only say how they are computed."""


@dataclass
class Sight:
    """What was seen of one training step."""

    compared: list[Captured] = field(default_factory=list)
    features: list[Tensor] = field(default_factory=list)
    """Of the student's backbone, one view after the other."""
    projections: list[Tensor] = field(default_factory=list)
    """Of the student's projector."""
    seconds: float = 0.0
    """What seeing took, where it took any."""


def compares_cosines(module: Any) -> bool:
    """Whether the angles that a method compares can be seen."""
    return _reports_itself(module) or bool(losses_in(type(module), COUNTERPARTS))


def _reports_itself(module: Any) -> bool:
    """Whether a method uses our losses, which say what they compare."""
    return hasattr(module, "margins")


@contextmanager
def watching(module: Any) -> Iterator[Sight]:
    """Watch a method while the block runs, which is to hold one training step.

    A method of solo-learn compares its vectors by solo-learn's own loss; beside it, and without a
    gradient, the loss of ours that equals it is called, only to say what was compared.
    """
    sight = Sight()
    with ExitStack() as stack:
        sight.compared = stack.enter_context(capture())
        for name, outputs in (("backbone", sight.features), ("projector", sight.projections)):
            part = getattr(module, name, None)
            if isinstance(part, nn.Module):
                stack.callback(_collect(part, outputs))
        if not _reports_itself(module):
            stack.enter_context(_repeated_losses(module, sight))
        yield sight


def _collect(part: nn.Module, outputs: list[Tensor]) -> Callable[[], None]:
    def remember(_: Any, inputs: Any, output: Any) -> None:
        # With torch.is_grad_enabled() off it is no part of the step: a look at validation images.
        if isinstance(output, Tensor) and output.ndim == 2 and torch.is_grad_enabled():
            outputs.append(output.detach())

    return part.register_forward_hook(remember).remove


@contextmanager
def _repeated_losses(module: Any, sight: Sight) -> Iterator[None]:
    method = type(module)
    used = losses_in(method, COUNTERPARTS)
    if not used:
        yield
        return

    def repeated(name: str, original: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def loss(*args: Any, **kwargs: Any) -> Tensor:
            value = original(*args, **kwargs)
            began = time.perf_counter()
            with torch.no_grad():
                known = {key: item for key, item in kwargs.items() if key not in NOT_OURS}
                COUNTERPARTS[name](*args, **known)
            sight.seconds += time.perf_counter() - began
            return value

        return loss

    step = step_with_losses(method, {name: repeated(name, loss) for name, loss in used.items()})
    module.training_step = MethodType(step, module)
    try:
        yield
    finally:
        del module.training_step
