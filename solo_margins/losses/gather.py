"""Gathering over ranks, for batches that may differ in size from rank to rank."""

import torch
import torch.distributed as dist
from torch import Tensor


def is_alone() -> bool:
    """Return whether there is one rank only."""
    return not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1


def sum_over_ranks(values: Tensor) -> Tensor:
    """Return the sum of all ranks' values, without gradient; the same numbers on every rank."""
    values = values.detach().clone()
    if not is_alone():
        dist.all_reduce(values)
    return values


def batch_sizes(rows: Tensor, gathers: bool = True) -> list[int]:
    """Return how many rows each rank holds, or this rank alone if nothing is to be gathered.

    They are asked for in every call, which waits for the device once: a rank whose batch is as
    large as before cannot know that another rank's is the last and smaller one, and sizes that are
    remembered would belong to the process.
    """
    if not gathers or is_alone():
        return [rows.shape[0]]
    own = torch.tensor([rows.shape[0]], device=rows.device)
    sizes = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, own)
    # At once, so that the device is waited for once.
    return torch.cat(sizes).tolist()


def own_rows(sizes: list[int]) -> slice:
    """Return which rows of the gathered tensor are this rank's."""
    rank = dist.get_rank() if len(sizes) > 1 else 0
    return slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))


def gather(rows: Tensor, sizes: list[int], with_gradient: bool = False) -> Tensor:
    """Return the rows of all ranks in the order of ranks; a single process gets ``rows`` back.

    Without gradient they are detached; with it they are differentiable on every rank.
    """
    if len(sizes) == 1:
        return rows
    # Collectives need equal shapes; a ragged last batch would hang or corrupt them.
    missing = rows.new_zeros((max(sizes) - len(rows), *rows.shape[1:]))
    padded = torch.cat([rows, missing])
    if with_gradient:
        parts = _all_gather_with_gradient(padded)
    else:
        parts = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(parts, padded.detach())
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


def _all_gather_with_gradient(rows: Tensor) -> list[Tensor]:
    """Return the rows of each rank, all of the same shape and differentiable."""
    from torch.distributed import _functional_collectives as collectives

    if hasattr(collectives, "all_gather_single"):
        every_rank = dist.group.WORLD
        assert every_rank is not None
        gathered = collectives.all_gather_single(rows, gather_dim=0, group=every_rank)
        return list(collectives.wait_tensor(gathered).split(len(rows)))
    # Before torch 2.14, which deprecates it.
    from torch.distributed.nn.functional import all_gather

    return list(all_gather(rows))
