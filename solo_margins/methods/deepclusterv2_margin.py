"""DeepCluster v2 with margins.

References:
    - [0] Unsupervised Learning of Visual Features by Contrasting Cluster Assignments, appendix
      (DeepCluster v2), 2020, https://arxiv.org/abs/2006.09882
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from solo_margins import host
from solo_margins.losses import deepclusterv2_margin_loss_func
from solo_margins.methods.margin_method import MarginMethod


class DeepClusterV2Margin(MarginMethod, host.DeepClusterV2):
    """DeepCluster v2 with margins between an image and the prototype of its own cluster.

    Extra cfg settings, besides those of :class:`MarginMethod`:
        method_kwargs:
            proj_output_dim, proj_hidden_dim, temperature, num_prototypes, kmeans_iters: as for
                DeepCluster v2.
    """

    own_settings = ("num_prototypes", "kmeans_iters")
    negatives_are_of_the_batch = False

    def cluster_loss(self, outputs: Tensor, assignments: Tensor, temperature: float) -> Tensor:
        """Return the mean over all sets of prototypes of the loss with margins.

        ``outputs`` are cosines with all prototypes; the projections behind them say the same and
        give gradients that stay finite.
        """
        z = torch.cat(self.student_projections)
        views = len(self.student_projections)
        losses = [
            deepclusterv2_margin_loss_func(
                z, prototypes.weight, assigned.repeat(views).to(z.device), temperature, self.margins
            )
            for prototypes, assigned in zip(self.prototypes, assignments, strict=True)
        ]
        return torch.stack(losses).mean()

    def replaced_losses(self) -> Mapping[str, Callable[..., Tensor]]:
        """Return the loss that takes the place of DeepCluster v2's."""
        return {"deepclusterv2_loss_func": self.cluster_loss}
