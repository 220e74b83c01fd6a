"""W-MSE with margins and curvature.

References:
    - [0] Whitening for Self-Supervised Representation Learning (W-MSE), 2020,
      https://arxiv.org/abs/2007.06346
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
"""

from collections.abc import Callable, Mapping
from functools import partial

from torch import Tensor

from solo_margins import host
from solo_margins.losses import byol_curv_loss_func
from solo_margins.methods.margin_method import MarginMethod


class WMSECurv(MarginMethod, host.WMSE):
    """W-MSE whose pairs of whitened projections are weighted by their angle.

    Extra cfg settings, besides those of :class:`MarginMethod`:
        method_kwargs:
            proj_output_dim, proj_hidden_dim, whitening_iters, whitening_size, whitening_eps: as for
                W-MSE.
    """

    has_negatives = False
    own_settings = (
        "whitening_iters",
        "whitening_size",
        "whitening_eps",
    )

    def replaced_losses(self) -> Mapping[str, Callable[..., Tensor]]:
        """Return the loss that takes the place of W-MSE's."""
        return {"wmse_loss_func": partial(byol_curv_loss_func, margins=self.margins)}
