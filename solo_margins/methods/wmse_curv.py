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
from omegaconf import DictConfig
from solo.methods.base import BaseMethod
from solo.methods.wmse import WMSE
from torch import Tensor

from solo_margins.losses import byol_curv_loss_func
from solo_margins.losses.checks import require_count
from solo_margins.methods.base import MarginMethod
from solo_margins.methods.queues import changed_in_groups
from solo_margins.methods.settings import MarginSettings


class WMSECurv(MarginMethod, WMSE):
    """W-MSE whose pairs of whitened projections are weighted by their angle.

    Extra cfg settings, besides those of `MarginMethod`:

    - `method_kwargs`:
        - `proj_output_dim`, `proj_hidden_dim`, `whitening_iters`, `whitening_size`,
            `whitening_eps`: as for W-MSE.
    """

    has_negatives = False
    compares_two_crops = False
    own_settings = (
        "proj_hidden_dim",
        "proj_output_dim",
        "whitening_iters",
        "whitening_size",
        "whitening_eps",
    )

    @classmethod
    def read_settings(cls, cfg: DictConfig) -> MarginSettings:
        """Return the settings of a configuration, which gets the values of those that it lacks."""
        settings = super().read_settings(cfg)
        size, batch = cfg.method_kwargs.whitening_size, cfg.optimizer.batch_size
        require_count("method_kwargs.whitening_iters", cfg.method_kwargs.whitening_iters)
        require_count("method_kwargs.whitening_size", size)
        if batch % size:
            raise ValueError(
                f"optimizer.batch_size must be a multiple of method_kwargs.whitening_size={size}, "
                f"got {batch}"
            )
        return settings

    def whitened(self, views: Sequence[Tensor]) -> list[Tensor]:
        """Return each view whitened in random groups of images, the same groups for all views."""
        return changed_in_groups(views, self.whitening_size, self.whitened_group)

    def whitened_group(self, group: Tensor) -> Tensor:
        """Return whitened vectors, computed in float32 or wider.

        In half precision on a CPU solo-learn's layer rounds the covariance as well, which is then
        not positive-definite: its Cholesky decomposition fails.
        """
        with torch.autocast(group.device.type, enabled=False):
            return self.whitening(group.to(torch.promote_types(group.dtype, torch.float32)))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the sum of the cosine loss with margins and the classifier's loss."""
        out = BaseMethod.training_step(self, batch, batch_idx)
        losses = [
            byol_curv_loss_func(one, other, self.margins_for(one))
            for _ in range(self.whitening_iters)
            for one, other in combinations(self.whitened(out["z"]), 2)
        ]
        loss = torch.stack(losses).mean()
        self.log_step(train_wmse_loss=loss)
        return self.with_polarization(loss + out["loss"], out["z"])
