"""DeepCluster v2 whose clusters survive a checkpoint."""

from __future__ import annotations

import logging
from typing import Any

MEMORY = ("local_memory_index", "local_memory_embeddings")
"""Buffers that the method makes when a training starts, one a process."""
KEY = "solo_margins_clusters"

log = logging.getLogger("solo_margins.checkpoints")


def keep_clusters(method: Any) -> None:
    """Make a class of DeepCluster v2 save its memory and its assignments, and take them up again.

    Symptoms: resuming fails, as the memory is in the checkpoint but not yet in the method; without
    it the next epoch's clusters are those of random features.
    """
    if getattr(method, "_keeps_clusters", False):
        return
    on_train_start = method.on_train_start
    on_save_checkpoint = method.on_save_checkpoint
    on_load_checkpoint = method.on_load_checkpoint

    def save(self: Any, checkpoint: dict[str, Any]) -> None:
        on_save_checkpoint(self, checkpoint)
        state = checkpoint["state_dict"]
        if all(name in state for name in MEMORY):
            # Every process remembers its own images; gathering needs all of them.
            gathered = [self.all_gather(state.pop(name)).cpu() for name in MEMORY]
            if self.trainer.world_size == 1:
                gathered = [memory[None] for memory in gathered]
            checkpoint[KEY] = {**dict(zip(MEMORY, gathered, strict=True))}
            checkpoint[KEY]["assignments"] = self.assignments.cpu()

    def load(self: Any, checkpoint: dict[str, Any]) -> None:
        on_load_checkpoint(self, checkpoint)
        for name in MEMORY:
            # Where a solo-learn without this repair has left it.
            checkpoint["state_dict"].pop(name, None)
        self._clusters_to_restore = checkpoint.get(KEY)

    def start(self: Any) -> None:
        on_train_start(self)
        kept, self._clusters_to_restore = getattr(self, "_clusters_to_restore", None), None
        if kept is None:
            return
        shape = (self.trainer.world_size, *self.local_memory_index.shape)
        if kept[MEMORY[0]].shape != shape:
            log.warning(
                "DeepCluster's memory of features is not restored, because the number of processes "
                "or of images has changed: it begins anew."
            )
            return
        for name in MEMORY:
            getattr(self, name).copy_(kept[name][self.global_rank])
        self.assignments = kept["assignments"].to(self.device)

    method.on_train_start = start
    method.on_save_checkpoint = save
    method.on_load_checkpoint = load
    method._keeps_clusters = True
