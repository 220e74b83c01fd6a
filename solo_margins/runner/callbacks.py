"""What a training shows and logs besides its own metrics."""

from __future__ import annotations

import re
import sys
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor

from solo_margins.config import read, setting


def missing_callbacks(module: Any) -> list[Any]:
    """Return the callbacks of a module's run that its trainer does not have yet."""
    from solo_margins.lens.callback import Lens
    from solo_margins.lens.settings import LensSettings
    from solo_margins.methods.margin_method import MarginMethod
    from solo_margins.methods.run_check import MarginRunCheck
    from solo_margins.runner.nonfinite import GuardSettings, NonFiniteGuard

    wanted: list[Any] = []
    is_ours = isinstance(module, MarginMethod)
    if is_ours:
        wanted += [MarginRunCheck(), NonFiniteGuard(read(module.cfg, "numerics", GuardSettings))]
    # Somebody's own configuration of a method of solo-learn may call something else "lens".
    if is_ours or setting(module.cfg, "lens.enabled") is True:
        settings = read(module.cfg, "lens", LensSettings)
        if settings.enabled:
            wanted.append(Lens(settings))
    present = {type(callback) for callback in module.trainer.callbacks}
    return [callback for callback in wanted if type(callback) not in present]


class GradientNorm(pl.Callback):
    """Logs the Euclidean norm of the gradient before clipping.

    ``grad_norm`` is that of all parameters, the one which ``gradient_clip_val`` limits;
    ``grad_norm_backbone`` leaves out heads and online classifiers. A large positive scale acts on
    them like a larger learning rate.
    """

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Log the norms in steps that are logged."""
        stepped = trainer.fit_loop.epoch_loop._batches_that_stepped
        if not trainer.loggers or (stepped + 1) % trainer.log_every_n_steps:
            return
        norms = {"grad_norm": gradient_norm(pl_module)}
        backbone = getattr(pl_module, "backbone", None)
        if backbone is not None and any(p.requires_grad for p in backbone.parameters()):
            norms["grad_norm_backbone"] = gradient_norm(backbone)
        pl_module.log_dict(norms, on_step=True, on_epoch=False)


def gradient_norm(module: Any) -> Tensor:
    """Return the norm of all gradients of a module, 0 when there are none."""
    gradients = [p.grad.detach() for p in module.parameters() if p.grad is not None]
    if not gradients:
        return torch.zeros(())
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))


class ProgressBar(pl.callbacks.TQDMProgressBar):
    """Lightning's bar with losses and accuracies: live on a terminal, once an epoch in a file.

    Args:
        batches_per_epoch: number of training batches in an epoch.
    """

    def __init__(self, batches_per_epoch: int) -> None:
        # Every refresh reads metrics, which waits for the device.
        updates_per_epoch = 50 if sys.stdout.isatty() else 1
        super().__init__(refresh_rate=max(1, batches_per_epoch // updates_per_epoch))

    def get_metrics(self, trainer: Any, pl_module: Any) -> dict[str, Any]:
        """Return the step's losses and the last validation's accuracies."""
        return {
            name.removesuffix("_step"): f"{float(value):.3g}"
            for name, value in trainer.callback_metrics.items()
            if name.endswith("loss_step") or re.fullmatch(r"val_(knn_)?acc1", name)
        }
