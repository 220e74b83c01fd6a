"""The online classifier's loss when images have no label."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def classification_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy over labelled images, 0 when there is none (target −1)."""
    total = F.cross_entropy(logits, targets, ignore_index=-1, reduction="sum")
    return total / (targets != -1).sum().clamp(min=1)
