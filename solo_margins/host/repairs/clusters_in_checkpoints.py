"""DeepCluster v2 cannot be resumed, as its memory of features is in the checkpoint but not yet in
the method. Without it the next epoch's clusters are those of random features.
"""

import logging
from typing import Any

from solo_margins.host.changes import Wrap

# Buffers that the method makes when a run starts, one a process.
MEMORY = ("local_memory_index", "local_memory_embeddings")
KEY = "deepcluster_memory"

log = logging.getLogger("solo_margins.checkpoints")


def on_save_checkpoint(original: Any, self: Any, checkpoint: dict[str, Any]) -> None:
    """Save the memories of all processes and the assignments of their images."""
    original(self, checkpoint)
    state = checkpoint["state_dict"]
    if all(name in state for name in MEMORY):
        # Every process remembers its own images; gathering needs all of them.
        gathered = [self.all_gather(state.pop(name)).cpu() for name in MEMORY]
        if self.trainer.world_size == 1:
            gathered = [memory[None] for memory in gathered]
        kept = dict(zip(MEMORY, gathered, strict=True))
        checkpoint[KEY] = {**kept, "assignments": self.assignments.cpu()}


def on_load_checkpoint(original: Any, self: Any, checkpoint: dict[str, Any]) -> None:
    """Keep what was saved until there is a memory to put it in."""
    original(self, checkpoint)
    for name in MEMORY:
        # Where checkpoints have it that were saved before this was.
        checkpoint["state_dict"].pop(name, None)
    self._clusters_to_restore = checkpoint.get(KEY)


def on_train_start(original: Any, self: Any) -> None:
    """Make the memory, and fill it with what was saved."""
    original(self)
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


CHANGES = (
    Wrap("methods.deepclusterv2", "DeepClusterV2.on_train_start", on_train_start),
    Wrap("methods.deepclusterv2", "DeepClusterV2.on_save_checkpoint", on_save_checkpoint),
    Wrap("methods.deepclusterv2", "DeepClusterV2.on_load_checkpoint", on_load_checkpoint),
)
