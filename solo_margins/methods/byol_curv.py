"""BYOL with margins and curvature.

References:
    - [0] Bootstrap Your Own Latent (BYOL), 2020, https://arxiv.org/abs/2006.07733
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from omegaconf import DictConfig
from torch import Tensor

from solo_margins import host
from solo_margins.losses import byol_curv_loss_func
from solo_margins.methods.settings import complete_method_settings, margins_from


class BYOLCurv(host.BYOL):
    """BYOL whose pairs are weighted by their angle; its weights are BYOL's.

    Extra cfg settings:
        method_kwargs:
            margins (dict): fields of :class:`solo_margins.losses.Margins` except attenuation, which
                needs negatives. With the defaults this is BYOL itself.
            proj_output_dim, proj_hidden_dim, pred_hidden_dim: as for BYOL.
    """

    def __init__(self, cfg: DictConfig) -> None:
        super().__init__(cfg)
        self.margins = margins_from(self.cfg.method_kwargs.margins)

    @staticmethod
    def add_and_assert_specific_cfg(cfg: DictConfig) -> DictConfig:
        """Return the configuration with BYOL's defaults and all margins written out."""
        cfg = host.BYOL.add_and_assert_specific_cfg(cfg)
        cfg = complete_method_settings(cfg)
        if cfg.method_kwargs.margins.attenuation != 0.0:
            raise ValueError(
                "method_kwargs.margins.attenuation must be 0 for method=byol_curv, which has no "
                f"negatives, got {cfg.method_kwargs.margins.attenuation!r}"
            )
        return cfg

    def training_step(self, batch: Sequence[Any], batch_idx: int) -> Tensor:
        """Return the loss of every crop against every other large one, plus the classifier's."""
        # Past BYOL's own step, which would compute a loss without margins.
        out = super(host.BYOL, self).training_step(batch, batch_idx)
        predictions, targets = out["p"], out["momentum_z"]
        neg_cos_sim = sum(
            byol_curv_loss_func(predictions[student], targets[teacher], self.margins)
            for teacher in range(self.num_large_crops)
            for student in range(self.num_crops)
            if student != teacher
        )
        with torch.no_grad():
            large = torch.stack(out["z"][: self.num_large_crops])
            z_std = F.normalize(large, dim=-1).std(dim=1).mean()
        self.log_dict(
            {"train_neg_cos_sim": neg_cos_sim, "train_z_std": z_std}, on_epoch=True, sync_dist=True
        )
        return neg_cos_sim + out["loss"]
