"""BYOL with margins and curvature.

References:
    - [0] Bootstrap Your Own Latent (BYOL), 2020, https://arxiv.org/abs/2006.07733
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
"""

from typing import Any

import torch
from solo.methods.base import BaseMomentumMethod
from solo.methods.byol import BYOL
from torch import Tensor
from torch.nn.functional import normalize

from solo_margins.losses import byol_curv_loss_func
from solo_margins.methods.base import OneDirection


class BYOLCurv(OneDirection, BYOL):
    """BYOL whose pairs are weighted by their angle; its weights are BYOL's.

    Extra cfg settings, besides those of `OneDirection`:

    - `method_kwargs`:
        - `proj_output_dim`, `proj_hidden_dim`, `pred_hidden_dim`: as for BYOL.
    """

    has_negatives = False

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the sum of the cosine loss with margins and the classifier's loss."""
        if self.margin_settings.symmetric:
            out = BaseMomentumMethod.training_step(self, batch, batch_idx)
            loss = sum(
                byol_curv_loss_func(prediction, target, self.margins_for(prediction))
                for of_target, target in enumerate(out["momentum_z"])
                for of_prediction, prediction in enumerate(out["p"])
                if of_prediction != of_target
            )
        else:
            out = self.one_direction_step(batch)
            prediction, target = out["p"][0], out["momentum_z"][0]
            loss = byol_curv_loss_func(prediction, target, self.margins_for(prediction))
        large = normalize(torch.stack(out["z"][: self.num_large_crops]).detach(), dim=-1)
        self.log_step(train_neg_cos_sim=loss, train_z_std=large.std(dim=1).mean())
        return self.with_polarization(loss + out["loss"], out["z"])
