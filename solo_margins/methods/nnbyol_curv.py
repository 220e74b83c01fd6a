"""NNBYOL with margins and curvature.

References:
    - [0] Nearest-Neighbor Contrastive Learning of Visual Representations (NNCLR), 2021,
      https://arxiv.org/abs/2104.14548
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
"""

from typing import Any

from solo.methods.base import BaseMomentumMethod
from solo.methods.nnbyol import NNBYOL
from torch import Tensor
from torch.nn.functional import normalize

from solo_margins.losses import byol_curv_loss_func
from solo_margins.methods.base import MarginMomentumMethod
from solo_margins.methods.queues import compared_with_neighbours


class NNBYOLCurv(MarginMomentumMethod, NNBYOL):
    """NNBYOL whose pairs of a prediction and a nearest neighbour are weighted by their angle.

    Extra cfg settings, besides those of `MarginMethod`:

    - `method_kwargs`:
        - `proj_output_dim`, `proj_hidden_dim`, `pred_hidden_dim`, `queue_size`: as for NNBYOL.
    """

    has_negatives = False
    own_settings = (
        "proj_hidden_dim",
        "proj_output_dim",
        "pred_hidden_dim",
        "queue_size",
    )
    has_queue = True

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the sum of the cosine loss with margins and the classifier's loss."""
        out = BaseMomentumMethod.training_step(self, batch, batch_idx)
        z1, z2 = out["momentum_z"]
        neighbours = self.neighbours(z1, z2, batch[-1])
        loss = sum(
            byol_curv_loss_func(prediction, neighbour, self.margins_for(prediction))
            for prediction, neighbour in compared_with_neighbours(out["p"], neighbours)
        )
        spread = sum(normalize(z.detach(), dim=-1).std(dim=0).mean() for z in out["z"]) / 2
        self.log_step(train_neg_cos_sim=loss, train_z_std=spread)
        return self.with_polarization(loss + out["loss"], out["z"])
