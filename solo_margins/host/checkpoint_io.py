"""How a trainer writes checkpoints."""

from __future__ import annotations

import io
from typing import Any

import torch

from solo_margins.host.lightning import pl


class DirectCheckpointIO(pl.plugins.TorchCheckpointIO):
    """Writes a checkpoint where it belongs, and returns when the disk has it.

    Lightning's own writes it to the folder for temporary files first, which may be smaller, and
    says nothing of a folder that it may not write to.
    """

    def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None) -> None:
        """Write a checkpoint to a file of this machine."""
        # In memory first: errors of torch's own file writing do not say what happened.
        content = io.BytesIO()
        torch.save(checkpoint, content)
        with open(path, "wb") as file:
            file.write(content.getbuffer())
