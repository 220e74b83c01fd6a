"""SupCon with margins.

References:
    - [0] Supervised Contrastive Learning (SupCon), 2020, https://arxiv.org/abs/2004.11362
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
"""

from typing import Any

import torch
from solo.methods.base import BaseMethod
from solo.methods.supcon import SupCon
from torch import Tensor

from solo_margins.losses import simclr_margin_loss_func
from solo_margins.methods.base import MarginMethod


class SupConMargin(MarginMethod, SupCon):
    """SupCon whose positives, all images of the same class, get margins.

    Extra cfg settings, besides those of `MarginMethod`:

    - `method_kwargs`:
        - `proj_batch_norm` (bool): batch normalisation before the projector's ReLU. Defaults to
            false, as in solo-learn.
        - `proj_output_dim`, `proj_hidden_dim`, `temperature`: as for SupCon.
    """

    own_settings = (
        "proj_hidden_dim",
        "proj_output_dim",
        "temperature",
        "proj_batch_norm",
    )

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the sum of the contrastive loss with margins and the classifier's loss."""
        out = BaseMethod.training_step(self, batch, batch_idx)
        labels = batch[-1].repeat(self.num_crops)
        z = torch.cat(out["z"])
        temperature = self.temperature_by_indexes(z, labels)
        loss = simclr_margin_loss_func(z, labels, temperature, self.margins_for(z))
        self.log_step(train_nce_loss=loss)
        return self.with_polarization(loss + out["loss"], out["z"])
