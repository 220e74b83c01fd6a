"""NNCLR with margins.

References:
    - [0] Nearest-Neighbor Contrastive Learning of Visual Representations (NNCLR), 2021,
      https://arxiv.org/abs/2104.14548
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
"""

from typing import Any

import torch
from solo.methods.base import BaseMethod
from solo.methods.nnclr import NNCLR
from torch import Tensor

from solo_margins.losses import nnclr_margin_loss_func
from solo_margins.methods.base import MarginMethod
from solo_margins.methods.queues import compared_with_neighbours


class NNCLRMargin(MarginMethod, NNCLR):
    """NNCLR whose positives, nearest neighbours of the other view, get margins.

    Extra cfg settings, besides those of `MarginMethod`:

    - `method_kwargs`:
        - `negatives` (dict): ``kind`` (standard, debiased, hard or gaussian) and what that reads;
            see `solo_margins.methods.settings.Negatives`. Defaults to standard.
        - `proj_output_dim`, `proj_hidden_dim`, `pred_hidden_dim`, `temperature`, `queue_size`:
            as for NNCLR.
    """

    own_settings = (
        "proj_hidden_dim",
        "proj_output_dim",
        "pred_hidden_dim",
        "temperature",
        "queue_size",
        "negatives",
    )
    has_queue = True

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the sum of the contrastive loss with margins and the classifier's loss."""
        out = BaseMethod.training_step(self, batch, batch_idx)
        z1, z2 = out["z"]
        neighbours = self.neighbours(z1, z2, batch[-1])
        losses = [
            nnclr_margin_loss_func(
                neighbour,
                prediction,
                self.temperature_for(neighbour, prediction),
                self.margins_for(prediction),
                **self.negatives.weights,
            )
            for prediction, neighbour in compared_with_neighbours(out["p"], neighbours)
        ]
        loss = torch.stack(losses).mean()
        self.log_step(train_nnclr_loss=loss)
        return self.with_polarization(loss + out["loss"], out["z"])
