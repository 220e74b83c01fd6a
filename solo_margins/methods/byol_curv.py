"""BYOL with margins and curvature.

References:
    - [0] Bootstrap Your Own Latent (BYOL), 2020, https://arxiv.org/abs/2006.07733
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from solo_margins import host
from solo_margins.losses import byol_curv_loss_func
from solo_margins.methods.one_direction import OneDirection


class BYOLCurv(OneDirection, host.BYOL):
    """BYOL whose pairs are weighted by their angle; its weights are BYOL's.

    Extra cfg settings, besides those of :class:`OneDirection`:
        method_kwargs:
            proj_output_dim, proj_hidden_dim, pred_hidden_dim: as for BYOL.
    """

    has_negatives = False

    def cosine_loss(self, p: Tensor, z: Tensor) -> Tensor:
        """Return the loss of one direction with the margins of this step."""
        return byol_curv_loss_func(p, z, self.margins)

    def replaced_losses(self) -> Mapping[str, Callable[..., Tensor]]:
        """Return the loss that takes the place of BYOL's."""
        return {"byol_loss_func": self.cosine_loss}

    def one_direction_loss(self, student: dict[str, Any], teacher: dict[str, Any]) -> Tensor:
        """Return the loss of the strong view's predictions against the weak view's targets."""
        loss = self.cosine_loss(student["p"], teacher["z"])
        with torch.no_grad():
            z_std = F.normalize(student["z"], dim=-1).std(dim=0).mean()
        self.log_dict(
            {"train_neg_cos_sim": loss, "train_z_std": z_std}, on_epoch=True, sync_dist=True
        )
        return loss
