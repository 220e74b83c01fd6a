"""SimSiam with margins and curvature.

References:
    - [0] Exploring Simple Siamese Representation Learning (SimSiam), 2020,
      https://arxiv.org/abs/2011.10566
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
"""

from typing import Any

from solo.methods.base import BaseMethod
from solo.methods.simsiam import SimSiam
from torch import Tensor
from torch.nn.functional import normalize

from solo_margins.losses import simsiam_curv_loss_func
from solo_margins.methods.base import MarginMethod


class SimSiamCurv(MarginMethod, SimSiam):
    """SimSiam whose pairs are weighted by their angle.

    Extra cfg settings, besides those of `MarginMethod`:

    - `method_kwargs`:
        - `proj_output_dim`, `proj_hidden_dim`, `pred_hidden_dim`: as for SimSiam.
    """

    has_negatives = False
    own_settings = (
        "proj_hidden_dim",
        "proj_output_dim",
        "pred_hidden_dim",
        # Not read: solo-learn's own recipes of SimSiam set it.
        "temperature",
    )

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the sum of the cosine loss with margins and the classifier's loss."""
        out = BaseMethod.training_step(self, batch, batch_idx)
        (z1, z2), (p1, p2) = out["z"], out["p"]
        loss = simsiam_curv_loss_func(p1, z2, self.margins_for(p1)) / 2
        loss = loss + simsiam_curv_loss_func(p2, z1, self.margins_for(p2)) / 2
        spread = sum(normalize(z.detach(), dim=-1).std(dim=0).mean() for z in (z1, z2)) / 2
        self.log_step(train_neg_cos_sim=loss, train_z_std=spread)
        return self.with_polarization(loss + out["loss"], out["z"])
