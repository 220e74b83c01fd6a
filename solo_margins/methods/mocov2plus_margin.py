"""MoCo v2+ with margins.

References:
    - [0] Exploring Simple Siamese Representation Learning, appendix (MoCo v2+), 2020,
      https://arxiv.org/abs/2011.10566
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
"""

from collections.abc import Callable, Mapping
from functools import partial

from torch import Tensor

from solo_margins import host
from solo_margins.losses import mocov2plus_margin_loss_func
from solo_margins.methods.margin_method import MarginMethod


class MoCoV2PlusMargin(MarginMethod, host.MoCoV2Plus):
    """MoCo v2+ whose positives get margins against a queue of negatives.

    Extra cfg settings, besides those of :class:`MarginMethod`:
        method_kwargs:
            proj_batch_norm (bool): batch normalisation before the projector's ReLU. Defaults to
                false, as in solo-learn.
            proj_output_dim, proj_hidden_dim, temperature, queue_size: as for MoCo v2+.
    """

    own_settings = ("proj_batch_norm",)
    negatives_are_of_the_batch = False
    has_queue = True

    def replaced_losses(self) -> Mapping[str, Callable[..., Tensor]]:
        """Return the loss that takes the place of MoCo v2+'s."""
        return {"mocov2plus_loss_func": partial(mocov2plus_margin_loss_func, margins=self.margins)}
