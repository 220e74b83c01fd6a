"""Captures what a method compares while it takes one training step."""

import functools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from solo_margins import losses
from solo_margins.losses.capture import Captured
from solo_margins.losses.capture import capture as capture_losses

# solo-learn's losses and those of ours that equal them at default margins.
COUNTERPARTS: dict[str, Callable[..., Tensor]] = {
    "simclr_loss_func": losses.simclr_margin_loss_func,
    "mocov3_loss_func": losses.mocov3_margin_loss_func,
    "mocov2plus_loss_func": losses.mocov2plus_margin_loss_func,
    "moco_loss_func": losses.mocov2plus_margin_loss_func,  # its name in release 1.0.2
    "nnclr_loss_func": losses.nnclr_margin_loss_func,
    "byol_loss_func": losses.byol_curv_loss_func,
    "simsiam_loss_func": losses.simsiam_curv_loss_func,
    "wmse_loss_func": losses.byol_curv_loss_func,
}


@dataclass
class StepCapture:
    """What was captured of one training step.

    Attributes:
        compared: what the losses compared.
        features: of the student's backbone, one view after the other.
        projections: of the student's projector.
        seconds: time that capturing took.
    """

    compared: list[Captured] = field(default_factory=list)
    features: list[Tensor] = field(default_factory=list)
    projections: list[Tensor] = field(default_factory=list)
    seconds: float = 0.0


@contextmanager
def capture(module: Any, backbone: Any = None, projector: Any = None) -> Iterator[StepCapture]:
    """Capture what a method compares while the block runs, which should be one training step.

    Our losses report what they compare. Where a method calls a loss of solo-learn, the loss of ours
    that equals it is called beside it, without a gradient, only for that report.

    Args:
        module: the method, or any model.
        backbone: its part that makes features; None looks for one with a usual name.
        projector: its part that makes projections; None looks for one with a usual name.
    """
    captured = StepCapture()
    module = getattr(module, "module", module)  # DistributedDataParallel's
    with ExitStack() as stack:
        captured.compared = stack.enter_context(capture_losses())
        for outputs, part, *usual_names in (
            (captured.features, backbone, "backbone", "encoder"),
            (captured.projections, projector, "projector", "projection_head"),
        ):
            usual = [getattr(module, name, None) for name in usual_names]
            found = [one for one in usual if isinstance(one, nn.Module)]
            for observed in (found if part is None else [part])[:1]:
                hook = functools.partial(_collect, outputs, module)
                stack.callback(observed.register_forward_hook(hook).remove)
        # A method looks its loss up by name in the module that it was written in.
        for source in {sys.modules.get(base.__module__) for base in type(module).__mro__} - {None}:
            for name in COUNTERPARTS.keys() & vars(source).keys():
                stack.enter_context(patch.object(source, name, _reported(source, name, captured)))
        yield captured


def _collect(outputs: list[Tensor], model: Any, module: Any, inputs: Any, output: Any) -> None:
    """Remember what a part of the method returns."""
    # The backward pass encodes parts of a batch a second time.
    if getattr(model, "is_recomputing", False):
        return
    # Without gradients it is not part of the step: validation images, for example.
    if isinstance(output, Tensor) and output.ndim >= 2 and torch.is_grad_enabled():
        # Pooled images may still have a height and a width, of 1; other maps are no features.
        outputs.extend([output.detach().flatten(1)] if output.shape[2:].numel() == 1 else [])


def _reported(source: Any, name: str, captured: StepCapture) -> Callable[..., Tensor]:
    """Return a loss of solo-learn that also has ours report what it compares."""
    loss, ours = getattr(source, name), COUNTERPARTS[name]

    @functools.wraps(loss)
    def reported(*args: Any, **kwargs: Any) -> Tensor:
        value: Tensor = loss(*args, **kwargs)
        kwargs.pop("simplified", None)  # only says how theirs is computed
        began = time.perf_counter()
        # A loss of the same name with other arguments is not the one that ours equals.
        with torch.no_grad(), suppress(TypeError, ValueError):
            ours(*args, **kwargs)
        captured.seconds += time.perf_counter() - began
        return value

    return reported
