"""Gathering over ranks, for batches that may differ in size from rank to rank."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def batch_sizes(rows: Tensor) -> list[int]:
    """Return how many rows each rank holds."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return [rows.shape[0]]
    own = torch.tensor([rows.shape[0]], device=rows.device)
    sizes = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, own)
    return [int(size) for size in torch.cat(sizes)]


def own_rows(sizes: list[int]) -> slice:
    """Return which rows of the gathered tensor are this rank's."""
    rank = dist.get_rank() if len(sizes) > 1 else 0
    return slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))


def gather(rows: Tensor, sizes: list[int], with_gradient: bool = False) -> Tensor:
    """Return the rows of all ranks, in the order of ranks; one process gets ``rows`` as they are.

    Without gradient they are detached; with it they are differentiable on every rank.
    """
    if len(sizes) == 1:
        return rows
    return _Gather.apply(rows if with_gradient else rows.detach(), sizes)


class _Gather(torch.autograd.Function):
    """Gather rows; backward sums what all ranks' losses want of this rank's rows."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: list[int]) -> Tensor:
        ctx.sizes = sizes
        # Collectives want equal shapes; a ragged last batch would hang or corrupt them.
        padded = rows.new_zeros((max(sizes), *rows.shape[1:]))
        padded[: rows.shape[0]] = rows
        parts = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(parts, padded)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _SumOfRanks.apply(gradient, ctx.sizes), None


class _SumOfRanks(torch.autograd.Function):
    """Sum over ranks and keep this rank's rows; backward gathers again, for second derivatives."""

    @staticmethod
    def forward(ctx: Any, gathered: Tensor, sizes: list[int]) -> Tensor:
        ctx.sizes = sizes
        total = gathered.contiguous().clone()
        dist.all_reduce(total)
        return total[own_rows(sizes)]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _Gather.apply(gradient, ctx.sizes), None
