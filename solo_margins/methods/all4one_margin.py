"""All4One with margins.

References:
    - [0] All4One: Symbiotic Neighbour Contrastive Learning, 2023,
      https://arxiv.org/abs/2303.09417
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
"""

from collections.abc import Callable, Mapping
from functools import partial

from torch import Tensor

from solo_margins import host
from solo_margins.losses import nnclr_margin_loss_func
from solo_margins.methods.margin_method import MarginMethod


class All4OneMargin(MarginMethod, host.All4One):
    """All4One with margins in both of its contrasts; its feature loss has no positives.

    Extra cfg settings, besides those of :class:`MarginMethod`:
        method_kwargs:
            proj_output_dim, proj_hidden_dim, pred_hidden_dim, temperature, queue_size: as for
                All4One.
    """

    has_queue = True

    def replaced_losses(self) -> Mapping[str, Callable[..., Tensor]]:
        """Return the loss that takes the place of All4One's."""
        return {"nnclr_loss_func": partial(nnclr_margin_loss_func, margins=self.margins)}
