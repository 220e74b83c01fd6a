"""Which columns of a similarity matrix are positives of which row, and which are left out."""

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

# torch 2.1 and 2.2 have it under a private name only.
_is_compiling = getattr(torch.compiler, "is_compiling", None) or torch._utils.is_compiling


@dataclass(frozen=True)
class Positives:
    """The positives of each row, as column numbers or as numbers of vectors of their own.

    Attributes:
        columns: (N, P) column numbers, padded with a harmless column where ``valid`` is False.
        valid: (N, P) mask, or None if every row has P positives.
        excluded: (N, E) columns that are no negatives: the positives, and the row itself.
        mirrored: (N, P) position of the pair (column, row) in the flattened ``columns``, or None
            if rows and columns are different vectors.
        negatives: number of negatives of each row, (N,) or one number for all.
        counted: number of rows, over all ranks, that have a positive and so enter the mean.
        vectors: unit vectors, without gradient, that ``columns`` counts where positives are no
            columns of the matrix; None where they are.
    """

    columns: Tensor
    valid: Tensor | None
    excluded: Tensor
    mirrored: Tensor | None
    negatives: Tensor | int
    counted: int
    vectors: Tensor | None = None

    def count(self, rows: slice, dtype: torch.dtype) -> Tensor | int:
        """Return the number of positives of some rows, at least 1 so that it can be divided by."""
        if self.valid is None:
            return max(self.columns.shape[1], 1)
        return self.valid[rows].sum(dim=1).clamp_min(1).to(dtype)

    def count_negatives(self, rows: slice, dtype: torch.dtype) -> Tensor | int:
        """Return the number of negatives of some rows."""
        if isinstance(self.negatives, int):
            return self.negatives
        return self.negatives[rows].to(dtype)


def diagonal_positives(rows: int, first: int, total: int, device: torch.device) -> Positives:
    """Return the structure of query against key: row i's only positive is column first + i."""
    columns = torch.arange(first, first + rows, device=device).unsqueeze(1)
    return Positives(columns, None, columns, None, total - 1, total)


def paired_positives(partners: Tensor, negatives: int, total: int) -> Positives:
    """Return the structure of a queue: row i's only positive is partner i, no column at all."""
    own = torch.arange(partners.shape[0], device=partners.device).unsqueeze(1)
    return Positives(own, None, own[:, :0], None, negatives, total, partners)


def assigned_positives(assignments: Tensor, prototypes: int) -> Positives:
    """Return the structure of rows against prototypes: each row's only positive is its own one.

    Args:
        assignments: (N,) number of each row's prototype; -1 for a row without one.
        prototypes: how many there are.
    """
    valid = (assignments >= 0).unsqueeze(1)
    columns = assignments.long().clamp_min(0).unsqueeze(1)
    counted = int(valid.sum())
    every = counted == len(assignments)
    return Positives(columns, None if every else valid, columns, None, prototypes - 1, counted)


def same_id_positives(ids: Tensor, all_ids: Tensor, first: int) -> Positives:
    """Return the structure of rows against all rows: positives share the id, self is excluded.

    Args:
        ids: (N,) ids of the rows.
        all_ids: (M,) ids of the columns; ``all_ids[first : first + N]`` are those of the rows.
        first: column number of the first row.
    """
    if len(ids) == len(all_ids) and (views := _stacked_views(ids)) is not None:
        # Compiled code must not share tensors with later calls through a cache.
        make = _make_view_positives if _is_compiling() else _view_positives
        return make(len(ids), views, ids.device)
    ordered, order = all_ids.sort(stable=True)
    left = torch.searchsorted(ordered, ids)
    group = torch.searchsorted(ordered, ids, right=True) - left
    own = torch.arange(first, first + len(ids), device=ids.device)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=ids.device)
    rank_in_group = place[own] - left

    smallest, largest = (int(size) for size in torch.aminmax(group))
    # The k-th other member, counted cyclically from the row itself: k = 1 … group - 1.
    steps = torch.arange(1, largest, device=ids.device)
    member = (rank_in_group.unsqueeze(1) + steps) % group.unsqueeze(1)
    columns = order[left.unsqueeze(1) + member]
    mirrored_step = group.unsqueeze(1) - steps
    if smallest == largest:
        valid = None
        negatives: Tensor | int = len(all_ids) - largest
    else:
        valid = steps < group.unsqueeze(1)
        columns = torch.where(valid, columns, own.unsqueeze(1))
        mirrored_step = mirrored_step.clamp_min(1)
        negatives = len(all_ids) - group
    return Positives(
        columns=columns,
        valid=valid,
        excluded=torch.cat([own.unsqueeze(1), columns], dim=1),
        mirrored=columns * (largest - 1) + mirrored_step - 1 if len(ids) == len(all_ids) else None,
        negatives=negatives,
        counted=_rows_with_partner(ordered, group, complete=len(ids) == len(all_ids)),
    )


def _stacked_views(ids: Tensor) -> int | None:
    """Return V where ids are V copies of one list of distinct ids, the common case, else None."""
    half = len(ids) // 2
    # Two views are asked for first, because it is cheap to ask.
    views = 2 if torch.equal(ids[:half], ids[half:]) else int((ids == ids[0]).sum())
    if views < 2 or len(ids) % views != 0:
        return None
    stacked = ids.view(views, -1)
    if views > 2 and bool((stacked != stacked[0]).any()):
        return None
    ordered = stacked[0].sort().values
    return None if bool((ordered[1:] == ordered[:-1]).any()) else views


def _make_view_positives(rows: int, views: int, device: torch.device) -> Positives:
    """Return the structure of V stacked views of distinct samples, which depends on sizes alone."""
    samples = rows // views
    own = torch.arange(rows, device=device).unsqueeze(1)
    steps = torch.arange(1, views, device=device)
    columns = (own + steps * samples) % rows
    return Positives(
        columns=columns,
        valid=None,
        excluded=torch.cat([own, columns], dim=1),
        mirrored=columns * (views - 1) + (views - steps) - 1,
        negatives=rows - views,
        counted=rows,
    )


_view_positives = functools.lru_cache(maxsize=8)(_make_view_positives)


def _rows_with_partner(ordered: Tensor, group: Tensor, complete: bool) -> int:
    """Return how many of all rows share their id with another row."""
    if not complete:
        _, sizes = torch.unique_consecutive(ordered, return_counts=True)
        return int(sizes[sizes > 1].sum())
    return int((group > 1).sum())
