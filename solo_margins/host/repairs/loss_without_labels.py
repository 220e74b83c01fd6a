"""A batch without any label makes the weights of the online classifier NaN."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from solo_margins.host.changes import Wrap


def classification_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy over labelled images, 0 when there is none."""
    total = F.cross_entropy(logits, targets, ignore_index=-1, reduction="sum")
    return total / (targets != -1).sum().clamp(min=1)


def train_on_labelled(original: Any, self: Any, X: Any, targets: Any) -> Any:
    """Let images without a label add nothing to the classifier's loss."""
    out = original(self, X, targets)
    if "logits" in out:
        out["loss"] = classification_loss(out["logits"], targets)
    return out


CHANGES = (
    Wrap("methods.base", "BaseMethod._base_shared_step", train_on_labelled),
    Wrap("methods.base", "BaseMomentumMethod._shared_step_momentum", train_on_labelled),
)
