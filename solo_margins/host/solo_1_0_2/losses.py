"""Losses of solo-learn's own methods as its repository defines them, and accuracies.

Release 1.0.2 has no loss for MoCo v3, and its SimCLR contrasts the images of one process alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from solo.utils import metrics as release
from torch import Tensor

from solo_margins.host.repairs.accuracy_with_few_classes_or_labels import accuracy_of_labelled


def _distributed() -> bool:
    return dist.is_available() and dist.is_initialized()


def rank() -> int:
    """Return the rank of this process, 0 outside of distributed training."""
    return dist.get_rank() if _distributed() else 0


@torch.no_grad()
def concat_all_gather_no_grad(tensor: Tensor) -> Tensor:
    """Return the tensors of all processes, one below the other, without gradient."""
    if not _distributed():
        return tensor
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor.contiguous())
    return torch.cat(parts)


class _Gather(torch.autograd.Function):
    """All-gather whose backward sums what every process contributes to a gradient."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> tuple[Tensor, ...]:
        return concat_all_gather_no_grad(tensor).chunk(dist.get_world_size())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = torch.stack(gradients)
        dist.all_reduce(total)
        return total[dist.get_rank()]


def gather(tensor: Tensor, dim: int = 0) -> Tensor:
    """Return the tensors of all processes concatenated, with gradient to every one of them."""
    return torch.cat(_Gather.apply(tensor), dim=dim) if _distributed() else tensor


def mocov3_loss_func(query: Tensor, key: Tensor, temperature: float = 0.2) -> Tensor:
    r"""Return MoCo v3's loss, :math:`2\tau` times the cross-entropy of cosine logits.

    Args:
        query: predictions of one view, N × D.
        key: momentum projections of the other view, N × D; those of all processes are contrasted.
        temperature: τ.
    """
    keys = concat_all_gather_no_grad(F.normalize(key, dim=1))
    logits = F.normalize(query, dim=1) @ keys.T / temperature
    labels = torch.arange(len(query), device=query.device) + rank() * len(query)
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
    same = indexes[:, None] == concat_all_gather_no_grad(indexes)[None, :]
    rows = torch.arange(len(z), device=z.device)
    itself = torch.zeros_like(same)
    itself[rows, rows + rank() * len(z)] = True
    everything = logits.masked_fill(itself, -torch.inf)
    positives = everything.masked_fill(~same, -torch.inf)
    return (everything.logsumexp(1) - positives.logsumexp(1)).mean()


def byol_loss_func(p: Tensor, z: Tensor) -> Tensor:
    """Return BYOL's loss, 2 − 2 cos between predictions and (fixed) momentum projections."""
    return 2 - 2 * F.cosine_similarity(p, z.detach(), dim=-1).mean()


def accuracy_at_k(outputs: Tensor, targets: Tensor, top_k: Sequence[int] = (1, 5)) -> Any:
    """Return the accuracies in percent at the given ranks, at most at the number of classes."""
    return accuracy_of_labelled(release.accuracy_at_k, outputs, targets, top_k)
