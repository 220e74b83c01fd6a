"""NNCLR with margins.

References:
    - [0] Nearest-Neighbor Contrastive Learning of Visual Representations (NNCLR), 2021,
      https://arxiv.org/abs/2104.14548
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
"""

from collections.abc import Callable, Mapping
from functools import partial

from torch import Tensor

from solo_margins import host
from solo_margins.losses import nnclr_margin_loss_func
from solo_margins.methods.margin_method import MarginMethod


class NNCLRMargin(MarginMethod, host.NNCLR):
    """NNCLR whose positives, nearest neighbours of the other view, get margins.

    Extra cfg settings, besides those of :class:`MarginMethod`:
        method_kwargs:
            proj_output_dim, proj_hidden_dim, pred_hidden_dim, temperature, queue_size: as for
                NNCLR.
    """

    has_queue = True

    def replaced_losses(self) -> Mapping[str, Callable[..., Tensor]]:
        """Return the loss that takes the place of NNCLR's."""
        return {"nnclr_loss_func": partial(nnclr_margin_loss_func, margins=self.margins)}
