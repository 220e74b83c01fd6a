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

    Our losses report what they compare; those of others are not seen.

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
