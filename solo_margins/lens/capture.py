"""Captures what a method compares while it takes one training step."""

import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from solo_margins.losses.capture import Captured
from solo_margins.losses.capture import capture as capture_losses


@dataclass
class StepCapture:
    """What was captured of one training step.

    Attributes:
        compared: what the losses compared.
        features: of the student's backbone, one view after the other.
        projections: of the student's projector.
    """

    compared: list[Captured] = field(default_factory=list)
    features: list[Tensor] = field(default_factory=list)
    projections: list[Tensor] = field(default_factory=list)


@contextmanager
def capture(module: Any, backbone: Any = None, projector: Any = None) -> Iterator[StepCapture]:
    """Capture what a method compares while the block runs, which should be one training step.

    Our losses report what they compare; see `solo_margins.losses.capture.capture`. Those of
    others are not seen. Features and projections are taken by PyTorch's forward hooks, which are
    removed at the end of the block.

    Args:
        module: the method, or any model.
        backbone: its part that makes features; None looks for one with a usual name.
        projector: its part that makes projections; None looks for one with a usual name.
    """
    module = getattr(module, "module", module)  # DistributedDataParallel's
    if backbone is None:
        backbone = _part_named(module, "backbone", "encoder")
    if projector is None:
        projector = _part_named(module, "projector", "projection_head")
    captured = StepCapture()
    with ExitStack() as stack:
        captured.compared = stack.enter_context(capture_losses())
        for part, outputs in ((backbone, captured.features), (projector, captured.projections)):
            if part is not None:
                hook = functools.partial(_collect, outputs, module)
                stack.callback(part.register_forward_hook(hook).remove)
        yield captured


def _part_named(module: Any, *names: str) -> nn.Module | None:
    """Return the first part of a model that has one of these names, None if there is none."""
    for name in names:
        part = getattr(module, name, None)
        if isinstance(part, nn.Module):
            return part
    return None


def _collect(outputs: list[Tensor], model: Any, module: Any, inputs: Any, output: Any) -> None:
    """Remember what a part of the model returns: the arguments of a forward hook come last."""
    # The backward pass encodes parts of a batch a second time.
    if getattr(model, "is_recomputing", False):
        return
    # Without gradients it is not part of the step: validation images, for example.
    if not isinstance(output, Tensor) or not torch.is_grad_enabled():
        return
    # Pooled images may still have a height and a width, of 1; other maps are no features.
    if output.ndim >= 2 and output.shape[2:].numel() == 1:
        outputs.append(output.detach().flatten(1))
