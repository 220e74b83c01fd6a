"""What methods with a predictor share."""

from typing import Any, ClassVar

import torch
from solo.utils.momentum import initialize_momentum_params
from torch import Tensor, nn

from solo_margins.solo_1_0_2.methods.base import BaseMomentumMethod


class WithPredictor(BaseMomentumMethod):
    """A method with a projector, which has a momentum copy, and a predictor."""

    # What the outputs of the predictor and of the momentum projector are called.
    prediction: ClassVar[str]
    target: ClassVar[str]

    def set_heads(self, projector: nn.Module, copied: nn.Module, predictor: nn.Module) -> None:
        """Take the heads, and let the projector's copy begin with its weights."""
        self.projector, self.momentum_projector, self.predictor = projector, copied, predictor
        initialize_momentum_params(projector, copied)

    def outputs(self, feats: Tensor) -> dict[str, Any]:
        """Return features, their projection ``z`` and its prediction."""
        z = self.projector(feats)
        return {"feats": feats, "z": z, self.prediction: self.predictor(z)}

    @torch.no_grad()
    def momentum_forward(self, X: Tensor) -> dict[str, Any]:
        """Return the parent's outputs and the momentum projection."""
        out = super().momentum_forward(X)
        return {**out, self.target: self.momentum_projector(out["feats"])}

    @property
    def learnable_params(self) -> list[dict[str, Any]]:
        """The parent's parameter groups, the projector's and the predictor's."""
        projector = {"name": "projector", "params": self.projector.parameters()}
        predictor = {"name": "predictor", "params": self.predictor.parameters()}
        return [*super().learnable_params, projector, predictor]

    @property
    def momentum_pairs(self) -> list[tuple[Any, Any]]:
        """The parent's pairs and that of the projectors."""
        return [*super().momentum_pairs, (self.projector, self.momentum_projector)]
