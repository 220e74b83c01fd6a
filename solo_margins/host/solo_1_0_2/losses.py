"""Losses as the repository defines them, over the images of all processes.

The release has none for MoCo v3, and its SimCLR contrasts the images of one process alone.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from solo_margins.losses.gather import batch_sizes, own_rows
from solo_margins.losses.gather import gather as gather_rows


def gather(tensor: Tensor) -> Tensor:
    """Return the rows of all processes, with gradient to every one of them."""
    return gather_rows(tensor, batch_sizes(tensor), with_gradient=True)


def mocov3_loss_func(query: Tensor, key: Tensor, temperature: float = 0.2) -> Tensor:
    r"""Return MoCo v3's loss, :math:`2\tau` times the cross-entropy of cosine logits.

    Args:
        query: predictions of one view, N × D.
        key: momentum projections of the other view, N × D; those of all processes are contrasted.
        temperature: τ.
    """
    sizes = batch_sizes(key)
    keys = gather_rows(F.normalize(key, dim=1).detach(), sizes)
    logits = F.normalize(query, dim=1) @ keys.T / temperature
    labels = torch.arange(len(keys), device=query.device)[own_rows(sizes)]
    return 2 * temperature * F.cross_entropy(logits, labels)


def simclr_loss_func(z: Tensor, indexes: Tensor, temperature: float = 0.1) -> Tensor:
    """Return SimCLR's loss, minus the mean log of the positives' share of the probability.

    Args:
        z: projections of all views, (views · N) × D; those of all processes are contrasted.
        indexes: the sample that each row shows; rows of one sample are positives of each other.
        temperature: temperature of the softmax.
    """
    z = F.normalize(z, dim=-1)
    logits = z @ gather(z).T / temperature
    sizes = batch_sizes(indexes)
    same = indexes[:, None] == gather_rows(indexes, sizes)[None, :]
    itself = torch.zeros_like(same)
    itself[:, own_rows(sizes)].fill_diagonal_(True)
    everything = logits.masked_fill(itself, -torch.inf)
    positives = everything.masked_fill(~same, -torch.inf)
    return (everything.logsumexp(1) - positives.logsumexp(1)).mean()
