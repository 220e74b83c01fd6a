"""Gathering over processes, for batches that may differ in size from rank to rank."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def world_size() -> int:
    """Return the number of processes that compute one loss together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def batch_sizes(rows: Tensor) -> list[int]:
    """Return how many rows each rank holds."""
    if world_size() == 1:
        return [rows.shape[0]]
    own = torch.tensor([rows.shape[0]], device=rows.device)
    sizes = [torch.empty_like(own) for _ in range(world_size())]
    dist.all_gather(sizes, own)
    return [int(size) for size in torch.cat(sizes)]


def first_row(sizes: list[int]) -> int:
    """Return where this rank's rows begin in the gathered tensor."""
    return sum(sizes[: dist.get_rank()]) if len(sizes) > 1 else 0


def row_weight(sizes: list[int]) -> float:
    """Return the weight of one row in the mean over all rows of all ranks.

    Data parallel training takes the mean over ranks. Weighted by the whole batch instead of this
    rank's share, rows count alike in it, ragged batches included.
    """
    return len(sizes) / sum(sizes)


def gather_without_gradient(rows: Tensor, sizes: list[int]) -> Tensor:
    """Return the rows of all ranks, in the order of ranks, detached; one process gets ``rows``."""
    if len(sizes) == 1:
        return rows
    # Collectives want equal shapes; a ragged last batch would hang or corrupt them.
    padded = rows.new_zeros((max(sizes), *rows.shape[1:]))
    padded[: rows.shape[0]] = rows.detach()
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


class _GatherWithGradient(torch.autograd.Function):
    """Gather rows; backward sums what all ranks' losses want of this rank's rows."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: list[int]) -> Tensor:
        """Return the rows of all ranks."""
        ctx.sizes = sizes
        return gather_without_gradient(rows, sizes)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Return the summed gradient of this rank's rows."""
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        start = first_row(ctx.sizes)
        return total[start : start + ctx.sizes[dist.get_rank()]], None


def gather_with_gradient(rows: Tensor, sizes: list[int]) -> Tensor:
    """Return the rows of all ranks, in the order of ranks, differentiable on every rank."""
    if len(sizes) == 1:
        return rows
    gathered: Tensor = _GatherWithGradient.apply(rows, sizes)
    return gathered
