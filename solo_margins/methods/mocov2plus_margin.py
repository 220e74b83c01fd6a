"""MoCo v2+ with margins.

References:
    - [0] Exploring Simple Siamese Representation Learning, appendix (MoCo v2+), 2020,
      https://arxiv.org/abs/2011.10566
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
"""

from typing import Any

import torch
from solo.methods.base import BaseMomentumMethod
from solo.methods.mocov2plus import MoCoV2Plus
from solo.utils.misc import gather
from torch import Tensor

from solo_margins.losses import mocov2plus_margin_loss_func
from solo_margins.methods.base import MarginMomentumMethod
from solo_margins.methods.queues import compared_with_queues


class MoCoV2PlusMargin(MarginMomentumMethod, MoCoV2Plus):
    """MoCo v2+ whose positives get margins against a queue of negatives.

    Extra cfg settings, besides those of `MarginMethod`:

    - `method_kwargs`:
        - `negatives` (dict): ``kind`` (standard, debiased, hard or gaussian) and what that reads;
            see `solo_margins.methods.settings.Negatives`. Defaults to standard.
        - `proj_batch_norm` (bool): batch normalisation before the projector's ReLU. Defaults to
            false, as in solo-learn.
        - `proj_output_dim`, `proj_hidden_dim`, `temperature`, `queue_size`: as for MoCo v2+.
    """

    own_settings = (
        "proj_hidden_dim",
        "proj_output_dim",
        "temperature",
        "queue_size",
        "negatives",
        "proj_batch_norm",
    )
    in_batch_negatives = False
    has_queue = True

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the sum of the contrastive loss with margins and the classifier's loss."""
        out = BaseMomentumMethod.training_step(self, batch, batch_idx)
        queries, keys = out["z"], out["momentum_z"]
        losses = [
            mocov2plus_margin_loss_func(
                query,
                key,
                queue,
                self.temperature_for(query, key),
                self.margins_for(query),
                **self.negatives.weights,
            )
            for query, key, queue in compared_with_queues(queries, keys, self.queue)
        ]
        loss = torch.stack(losses).mean()
        self._dequeue_and_enqueue(torch.stack([gather(key) for key in keys]))
        self.log_step(train_nce_loss=loss)
        return self.with_polarization(loss + out["loss"], out["z"])
