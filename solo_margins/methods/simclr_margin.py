"""SimCLR with margins, and with negatives weighted otherwise.

References:
    - [0] A Simple Framework for Contrastive Learning of Visual Representations (SimCLR), 2020,
      https://arxiv.org/abs/2002.05709
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
    - [2] Debiased Contrastive Learning, 2020, https://arxiv.org/abs/2007.00224
    - [3] Contrastive Learning with Hard Negative Samples, 2021, https://arxiv.org/abs/2010.04592
    - [4] Understanding Contrastive Learning via Distributionally Robust Optimization (ADNCE), 2023,
      https://arxiv.org/abs/2310.11048
"""

from typing import Any

import torch
from omegaconf import DictConfig
from solo.methods.base import BaseMethod
from solo.methods.simclr import SimCLR
from torch import Tensor, nn

from solo_margins.losses import simclr_margin_loss_func
from solo_margins.methods.base import MarginMethod


class SimCLRMargin(MarginMethod, SimCLR):
    """SimCLR whose positives get margins and scaled gradients; its weights are SimCLR's.

    Extra cfg settings, besides those of `MarginMethod`:

    - `method_kwargs`:
        - `negatives` (dict): ``kind`` (standard, debiased [2], hard [3] or gaussian [4]) and what
            that reads; see `solo_margins.methods.settings.Negatives`. Defaults to
            standard.
        - `proj_batch_norm` (bool): batch normalisation before the projector's ReLU. Defaults to
            false, as in solo-learn.
        - `proj_last_batch_norm` (bool): batch normalisation of the projector's output. Defaults to
            false, as in solo-learn.
        - `proj_output_dim`, `proj_hidden_dim`, `temperature`: as for SimCLR.
    """

    own_settings = (
        "proj_hidden_dim",
        "proj_output_dim",
        "temperature",
        "negatives",
        "proj_batch_norm",
        "proj_last_batch_norm",
    )

    def __init__(self, cfg: DictConfig) -> None:
        super().__init__(cfg)
        if self.margin_settings.proj_last_batch_norm:
            last = nn.BatchNorm1d(self.cfg.method_kwargs.proj_output_dim)
            # SimCLR's own code (github.com/google-research/simclr) scales but does not shift here.
            last.bias.requires_grad_(False)
            self.projector.add_module("last_batch_norm", last)

    def nce_loss(self, z: Tensor, indexes: Tensor | int) -> Tensor:
        """Return the contrastive loss of all views with the settings of this step.

        Args:
            z: (views·N, D) projections of all views.
            indexes: ids of the images, or the number of views.
        """
        temperature = self.temperature_by_indexes(z, indexes)
        return simclr_margin_loss_func(
            z, indexes, temperature, self.margins_for(z), **self.negatives.weights
        )

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the sum of the contrastive loss with margins and the classifier's loss."""
        out = BaseMethod.training_step(self, batch, batch_idx)
        # No image is in a batch twice: their indexes need not be compared on the device.
        loss = self.nce_loss(torch.cat(out["z"]), self.num_crops)
        self.log_step(train_nce_loss=loss)
        return self.with_polarization(loss + out["loss"], out["z"])
