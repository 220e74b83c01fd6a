"""The loss of MoCo v3, which the release does not have."""

from torch import Tensor

from solo_margins.losses import plain
from solo_margins.losses.margins import ContrastSpec


def mocov3_loss_func(query: Tensor, key: Tensor, temperature: float = 0.2) -> Tensor:
    r"""Return MoCo v3's loss, $2\tau$ times the cross-entropy of cosine logits."""
    return 2 * temperature * plain.query_key(query, key.detach(), ContrastSpec(temperature))
