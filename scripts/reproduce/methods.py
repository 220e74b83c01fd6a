"""What only the study needs (docs/results/study): a method, and a record of the weights."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch
from solo.methods import METHODS
from torch import Tensor, nn

from solo_margins.losses import plain
from solo_margins.losses.margins import ContrastSpec, Margins
from solo_margins.methods.mocov3_margin import MoCoV3Margin

NAME = "mocov3_study"


class StudyMoCoV3(MoCoV3Margin):
    """MoCo v3 with a gradient whose norm does not follow the margins.

    Extra cfg settings, besides those of :class:`MoCoV3Margin`:
        method_kwargs:
            hold_gradient_norm (bool): in every step, the gradient at the queries of a batch is
                multiplied by one number, so that its norm is that of the loss without margins.
    """

    own_settings = (*MoCoV3Margin.own_settings, "hold_gradient_norm")

    def contrastive_loss(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the loss of one direction with the margins of this step."""
        if self.cfg.method_kwargs.get("hold_gradient_norm") and query.requires_grad:
            query = hold_norm(query, key, self.temperature)
        return super().contrastive_loss(query, key)


def hold_norm(query: Tensor, key: Tensor, temperature: float) -> Tensor:
    """Return the queries; a gradient that passes them gets the norm of MoCo v3's own.

    The keys are the teacher's: nothing but the gradient at the queries reaches the weights.
    """
    leaf = query.detach().requires_grad_()
    with torch.enable_grad():
        # The plain form: the lens does not see it.
        loss = plain.query_key(leaf, key.detach(), ContrastSpec(temperature, Margins()))
    (gradient,) = torch.autograd.grad(2 * temperature * loss, leaf)
    norm, held = gradient.norm(), query.clone()
    held.register_hook(lambda passing: passing * (norm / passing.norm().clamp_min(1e-12)))
    return held


class WeightRecord(pl.Callback):
    """Follows the weights w of the backbone's convolutions, all of them as one vector.

    In a checkpoint: ``weight_norm``, ‖w‖ after the last step, ``effective_rate``, the mean over all
    steps of rate / ‖w‖², and ``turn``, the mean over all steps of ‖Δw‖ / ‖w‖.
    """

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        self.figures = {"weight_norm": 0.0, "effective_rate": 0.0, "turn": 0.0}

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, index: int) -> None:
        """Keep the weights before a step, and its rate."""
        self._before = _convolutions(pl_module.backbone)
        self._rate = trainer.optimizers[0].param_groups[0]["lr"]

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, index: int
    ) -> None:
        """Add a step to the means."""
        after, norm = _convolutions(pl_module.backbone), float(self._before.norm())
        turn = float((after - self._before).norm()) / norm
        self.add(self._rate / norm**2, turn, float(after.norm()))

    def add(self, effective_rate: float, turn: float, norm: float) -> None:
        """Add a step to the means; the norm is that after it."""
        self.steps += 1
        for name, value in (("effective_rate", effective_rate), ("turn", turn)):
            self.figures[name] += (value - self.figures[name]) / self.steps
        self.figures["weight_norm"] = norm

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run goes on with."""
        return {"steps": self.steps, **self.figures}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with the means of a run that was interrupted."""
        self.steps = state_dict["steps"]
        self.figures = {name: state_dict[name] for name in self.figures}


def _convolutions(backbone: nn.Module) -> Tensor:
    """Return a copy of the weights of all convolutions as one vector."""
    weights = [m.weight.detach() for m in backbone.modules() if isinstance(m, nn.Conv2d)]
    return torch.cat([weight.reshape(-1) for weight in weights])


def weight_figures(checkpoint: dict[str, Any]) -> dict[str, float]:
    """Return what a run's checkpoint holds of its weights."""
    state = dict(checkpoint["callbacks"][WeightRecord.__qualname__])
    del state["steps"]
    return state


def register() -> None:
    """Register the method, in every process that trains it."""
    METHODS[NAME] = StudyMoCoV3
