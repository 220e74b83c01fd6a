"""W-MSE with margins and curvature.

References:
    - [0] Whitening for Self-Supervised Representation Learning (W-MSE), 2020,
      https://arxiv.org/abs/2007.06346
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from solo_margins import host
from solo_margins.losses import byol_curv_loss_func
from solo_margins.methods.margin_method import MarginMethod
from solo_margins.methods.queues import changed_in_groups


class WMSECurv(MarginMethod, host.WMSE):
    """W-MSE whose pairs of whitened projections are weighted by their angle.

    Extra cfg settings, besides those of :class:`MarginMethod`:
        method_kwargs:
            proj_output_dim, proj_hidden_dim, whitening_iters, whitening_size, whitening_eps: as for
                W-MSE.
    """

    has_negatives = False
    own_settings = (
        "proj_hidden_dim",
        "proj_output_dim",
        "whitening_iters",
        "whitening_size",
        "whitening_eps",
    )

    def whitened(self, views: Sequence[Tensor]) -> list[Tensor]:
        """Return each view whitened in random groups of images, the same groups for all views."""
        return changed_in_groups(views, self.whitening_size, self.whitening)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the sum of the cosine loss with margins and the classifier's loss."""
        out = super(host.WMSE, self).training_step(batch, batch_idx)
        losses = [
            byol_curv_loss_func(one, other, self.margins)
            for _ in range(self.whitening_iters)
            for one, other in combinations(self.whitened(out["z"]), 2)
        ]
        loss = torch.stack(losses).mean()
        self.log_step(train_wmse_loss=loss)
        return self.with_polarization(loss + out["loss"], out["z"])
