"""NNBYOL with margins and curvature.

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
from solo_margins.losses import byol_curv_loss_func
from solo_margins.methods.margin_method import MarginMethod


class NNBYOLCurv(MarginMethod, host.NNBYOL):
    """NNBYOL whose pairs of a prediction and a nearest neighbour are weighted by their angle.

    Extra cfg settings, besides those of :class:`MarginMethod`:
        method_kwargs:
            proj_output_dim, proj_hidden_dim, pred_hidden_dim, queue_size: as for NNBYOL.
    """

    has_negatives = False
    has_queue = True

    def replaced_losses(self) -> Mapping[str, Callable[..., Tensor]]:
        """Return the loss that takes the place of NNBYOL's."""
        return {"byol_loss_func": partial(byol_curv_loss_func, margins=self.margins)}
