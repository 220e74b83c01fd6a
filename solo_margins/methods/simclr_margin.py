"""SimCLR with margins.

References:
    - [0] A Simple Framework for Contrastive Learning of Visual Representations (SimCLR), 2020,
      https://arxiv.org/abs/2002.05709
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
"""

from collections.abc import Sequence
from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor

from solo_margins import host
from solo_margins.losses import simclr_margin_loss_func
from solo_margins.methods.settings import complete_method_settings, margins_from


class SimCLRMargin(host.SimCLR):
    """SimCLR whose positives get margins and scaled gradients; its weights are SimCLR's.

    Extra cfg settings:
        method_kwargs:
            margins (dict): fields of :class:`solo_margins.losses.Margins`. With the defaults this
                is SimCLR itself.
            proj_output_dim, proj_hidden_dim, temperature: as for SimCLR.
    """

    def __init__(self, cfg: DictConfig) -> None:
        super().__init__(cfg)
        self.margins = margins_from(self.cfg.method_kwargs.margins)

    @staticmethod
    def add_and_assert_specific_cfg(cfg: DictConfig) -> DictConfig:
        """Return the configuration with SimCLR's defaults and all margins written out."""
        cfg = host.SimCLR.add_and_assert_specific_cfg(cfg)
        return complete_method_settings(cfg)

    def training_step(self, batch: Sequence[Any], batch_idx: int) -> Tensor:
        """Return the contrastive loss with margins, small crops included, plus the classifier's."""
        # Past SimCLR's own step, which would compute a loss without margins.
        out = super(host.SimCLR, self).training_step(batch, batch_idx)
        nce_loss = simclr_margin_loss_func(
            torch.cat(out["z"]), batch[0].repeat(self.num_crops), self.temperature, self.margins
        )
        self.log("train_nce_loss", nce_loss, on_epoch=True, sync_dist=True)
        return nce_loss + out["loss"]
