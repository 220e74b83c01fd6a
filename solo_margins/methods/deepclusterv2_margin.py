"""DeepCluster v2 with margins.

References:
    - [0] Unsupervised Learning of Visual Features by Contrasting Cluster Assignments, appendix
      (DeepCluster v2), 2020, https://arxiv.org/abs/2006.09882
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
"""

from typing import Any

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

    own_settings = (
        "proj_hidden_dim",
        "proj_output_dim",
        "temperature",
        "num_prototypes",
        "kmeans_iters",
    )
    in_batch_negatives = False

    def on_train_epoch_start(self) -> None:
        """Prepare clusters and assignments for the next epoch, on the device of the method."""
        # solo-learn fills a table on the default device, alone by indexes on the GPU and with other
        # ranks by such on the CPU. A table on the CPU cannot be indexed on the GPU.
        with torch.device("cpu" if torch.distributed.is_initialized() else self.device):
            super().on_train_epoch_start()
        self.assignments: Tensor = self.assignments.to(self.device)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the sum of the clusters' loss with margins and the classifier's loss."""
        indexes = batch[0]
        out = super(host.DeepClusterV2, self).training_step(batch, batch_idx)
        z = torch.cat(views := out["z"])
        assigned = self.assignments[:, indexes].repeat(1, len(views))
        # One loss for each set of prototypes.
        losses = [
            deepclusterv2_margin_loss_func(
                z, prototypes.weight, clusters, self.temperature, self.margins
            )
            for prototypes, clusters in zip(self.prototypes, assigned, strict=True)
        ]
        loss = torch.stack(losses).mean()
        self.update_memory_banks(indexes, views, batch_idx)
        self.log_step(train_deepcluster_loss=loss)
        return self.with_polarization(loss + out["loss"], views)
