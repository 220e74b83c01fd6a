"""The loss of SimCLR, which the release computes over the images of one process alone."""

from torch import Tensor

from solo_margins.losses import plain
from solo_margins.losses.margins import ContrastSpec


def simclr_loss_func(z: Tensor, indexes: Tensor, temperature: float = 0.1) -> Tensor:
    """Return SimCLR's loss, minus the mean log of the positives' share of the probability."""
    return plain.same_id(z, indexes, ContrastSpec(temperature))
