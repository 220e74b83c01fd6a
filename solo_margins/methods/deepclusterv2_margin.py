"""DeepCluster v2 with margins.

References:
    - [0] Unsupervised Learning of Visual Features by Contrasting Cluster Assignments, appendix
      (DeepCluster v2), 2020, https://arxiv.org/abs/2006.09882
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
"""

import logging
from typing import Any

import torch
from solo.methods.base import BaseMethod
from solo.methods.deepclusterv2 import DeepClusterV2
from torch import Tensor

from solo_margins.losses import deepclusterv2_margin_loss_func
from solo_margins.methods.base import MarginMethod

# Buffers that solo-learn makes when a run starts, one a process: the features of its images, from
# which the clusters of the next epoch come.
MEMORY = ("local_memory_index", "local_memory_embeddings")
# Where a checkpoint holds them.
MEMORY_KEY = "deepcluster_memory"

log = logging.getLogger("solo_margins.checkpoints")


class DeepClusterV2Margin(MarginMethod, DeepClusterV2):
    """DeepCluster v2 with margins between an image and the prototype of its own cluster.

    Extra cfg settings, besides those of `MarginMethod`:

    - `method_kwargs`:
        - `proj_output_dim`, `proj_hidden_dim`, `temperature`, `num_prototypes`, `kmeans_iters`:
            as for DeepCluster v2.
    """

    own_settings = (
        "proj_hidden_dim",
        "proj_output_dim",
        "temperature",
        "num_prototypes",
        "kmeans_iters",
    )
    in_batch_negatives = False

    assignments: Tensor  # of images to clusters
    # What a checkpoint holds, until there is a memory to put it in.
    memory_to_restore: dict[str, Tensor] | None = None

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the memories of all processes and the assignments of their images.

        solo-learn leaves the memory of one process in the state of the method, which cannot be
        loaded: a new method has no memory before its run starts.
        """
        super().on_save_checkpoint(checkpoint)
        state = checkpoint["state_dict"]
        if any(name not in state for name in MEMORY):
            return
        saved = {"assignments": self.assignments.cpu()}
        for name in MEMORY:
            # Every process remembers its own images; gathering needs all of them.
            memory = self.all_gather(state.pop(name)).cpu()
            saved[name] = memory[None] if self.trainer.world_size == 1 else memory
        checkpoint[MEMORY_KEY] = saved

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep what was saved until the run starts."""
        super().on_load_checkpoint(checkpoint)
        for name in MEMORY:
            # solo-learn's own checkpoints have it.
            checkpoint["state_dict"].pop(name, None)
        self.memory_to_restore = checkpoint.get(MEMORY_KEY)

    def on_train_start(self) -> None:
        """Make the memory, and fill it with what was saved."""
        super().on_train_start()
        saved, self.memory_to_restore = self.memory_to_restore, None
        if saved is None:
            return
        shape = (self.trainer.world_size, *self.local_memory_index.shape)
        if saved["local_memory_index"].shape != shape:
            log.warning(
                "DeepCluster's memory of features is not restored, because the number of processes "
                "or of images has changed: it begins anew."
            )
            return
        self.local_memory_index.copy_(saved["local_memory_index"][self.global_rank])
        self.local_memory_embeddings.copy_(saved["local_memory_embeddings"][self.global_rank])
        self.assignments = saved["assignments"].to(self.device)

    def on_train_epoch_start(self) -> None:
        """Prepare clusters and assignments for the next epoch, on the device of the method."""
        # solo-learn fills a table on the default device, alone by indexes on the GPU and with other
        # ranks by such on the CPU. A table on the CPU cannot be indexed on the GPU.
        with torch.device("cpu" if torch.distributed.is_initialized() else self.device):
            super().on_train_epoch_start()
        self.assignments = self.assignments.to(self.device)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the sum of the clusters' loss with margins and the classifier's loss."""
        indexes = batch[0]
        out = BaseMethod.training_step(self, batch, batch_idx)
        z = torch.cat(views := out["z"])
        assigned = self.assignments[:, indexes].repeat(1, len(views))
        # One loss for each set of prototypes.
        losses = []
        for prototypes, clusters in zip(self.prototypes, assigned, strict=True):
            centres = prototypes.weight
            is_assigned = clusters >= 0
            own_centres = centres[clusters.clamp_min(0)]
            temperature = self.temperature_for(z, own_centres, is_assigned)
            margins = self.margins_for(z)
            losses.append(
                deepclusterv2_margin_loss_func(z, centres, clusters, temperature, margins)
            )
        loss = torch.stack(losses).mean()
        self.update_memory_banks(indexes, views, batch_idx)
        self.log_step(train_deepcluster_loss=loss)
        return self.with_polarization(loss + out["loss"], views)
