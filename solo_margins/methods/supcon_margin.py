"""SupCon with margins.

References:
    - [0] Supervised Contrastive Learning (SupCon), 2020, https://arxiv.org/abs/2004.11362
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
"""

from collections.abc import Callable, Mapping
from functools import partial

from torch import Tensor

from solo_margins import host
from solo_margins.losses import simclr_margin_loss_func
from solo_margins.methods.margin_method import MarginMethod


class SupConMargin(MarginMethod, host.SupCon):
    """SupCon whose positives, all images of the same class, get margins.

    Extra cfg settings, besides those of :class:`MarginMethod`:
        method_kwargs:
            proj_batch_norm (bool): batch normalisation before the projector's ReLU. Defaults to
                false, as in solo-learn.
            proj_output_dim, proj_hidden_dim, temperature: as for SupCon.
    """

    own_settings = ("proj_batch_norm",)

    def replaced_losses(self) -> Mapping[str, Callable[..., Tensor]]:
        """Return the loss that takes the place of SupCon's."""
        return {"simclr_loss_func": partial(simclr_margin_loss_func, margins=self.margins)}
