"""Which columns of a similarity matrix are positives of which row, and which are left out."""

from dataclasses import dataclass

import torch
from torch import Tensor

Counts = tuple[Tensor | int, Tensor | int]


@dataclass(frozen=True)
class Positives:
    """The positives of each row, as column numbers or as numbers of vectors of their own.

    Attributes:
        columns: (N, P) column numbers, P >= 1, any column where ``valid`` is False.
        valid: (N, P) mask, or None if every row has P positives.
        excluded: (N, E) columns that are not negatives: the positives, and the row itself where it
            is a column; invalid entries of ``columns`` are repetitions here.
        counted: number of rows, over all ranks, that have a positive and so enter the mean.
        mirrored: (N, P) position of the pair (column, row) in the flattened ``columns``, or None
            if rows and columns are different vectors.
        vectors: unit vectors, without gradient, that ``columns`` refers to if positives are not
            columns of the matrix; None if they are.
    """

    columns: Tensor
    valid: Tensor | None
    excluded: Tensor
    counted: int
    mirrored: Tensor | None = None
    vectors: Tensor | None = None

    def counts(self, width: int, part: slice, dtype: torch.dtype) -> Counts:
        """Return the numbers of positives, at least 1, and of negatives of some rows."""
        positives, excluded = self.columns.shape[1], self.excluded.shape[1]
        if self.valid is None:
            return positives, width - excluded
        found = self.valid[part].sum(dim=1).to(dtype)
        return found.clamp_min(1.0), found.neg().add_(width - excluded + positives)

    def as_masks(self, columns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return all columns, separate positives last, and the masks of positives and negatives."""
        own, first = columns[:0], 0
        if self.vectors is not None:
            own, first = self.vectors, len(columns)
        nowhere = columns.new_zeros((len(self.columns), len(columns) + len(own)), dtype=torch.bool)
        valid = self.columns >= 0 if self.valid is None else self.valid
        is_negative = ~nowhere
        is_negative[:, len(columns) :] = False
        is_positive = nowhere.scatter(1, self.columns + first, valid)
        return torch.cat([columns, own]), is_positive, is_negative.scatter(1, self.excluded, False)


def diagonal_positives(rows: slice, total: int, device: torch.device) -> Positives:
    """Return the structure of query against key: each row's only positive is its own column."""
    columns = torch.arange(rows.start, rows.stop, device=device).unsqueeze(1)
    return Positives(columns, None, columns, total)


def paired_positives(partners: Tensor, total: int) -> Positives:
    """Return the structure of a queue: row i's only positive is partner i, not a column."""
    own = torch.arange(partners.shape[0], device=partners.device).unsqueeze(1)
    return Positives(own, None, own[:, :0], total, vectors=partners)


def assigned_positives(assignments: Tensor) -> Positives:
    """Return the structure of prototypes: a row's only positive is the assigned one, -1 none."""
    valid = (assignments >= 0).unsqueeze(1)
    columns = assignments.long().clamp_min(0).unsqueeze(1)
    counted = int(valid.sum())
    every = counted == len(assignments)
    return Positives(columns, None if every else valid, columns, counted)


def same_id_positives(ids: Tensor, all_ids: Tensor, rows: slice) -> Positives:
    """Return the structure of rows against all rows: positives share the id, self is excluded.

    Args:
        ids: (N,) ids of the rows.
        all_ids: (M,) ids of the columns.
        rows: which columns are the rows.
    """
    is_whole = len(ids) == len(all_ids)
    if is_whole and _are_two_views(ids):
        return _two_views(len(ids), ids.device)
    ordered, order = all_ids.sort(stable=True)
    left = torch.searchsorted(ordered, ids)
    group = torch.searchsorted(ordered, ids, right=True) - left
    own = torch.arange(rows.start, rows.stop, device=ids.device)
    position = torch.empty_like(order)
    position[order] = torch.arange(len(order), device=ids.device)
    rank_in_group = position[own] - left

    smallest, largest = (int(size) for size in torch.aminmax(group))
    most = max(largest - 1, 1)  # positives of a row
    # The k-th other member, counted cyclically from the row itself: k = 1 … group - 1.
    steps = torch.arange(1, most + 1, device=ids.device)
    member = (rank_in_group.unsqueeze(1) + steps) % group.unsqueeze(1)
    columns = order[left.unsqueeze(1) + member]
    mirrored_step = group.unsqueeze(1) - steps
    valid = None
    if smallest <= most:
        valid = steps < group.unsqueeze(1)
        columns = torch.where(valid, columns, own.unsqueeze(1))
        mirrored_step = mirrored_step.clamp_min(1)
    _, sizes = torch.unique_consecutive(ordered, return_counts=True)
    return Positives(
        columns=columns,
        valid=valid,
        excluded=torch.cat([own.unsqueeze(1), columns], dim=1),
        counted=int(sizes[sizes > 1].sum()),
        mirrored=columns * most + mirrored_step - 1 if is_whole else None,
    )


def _are_two_views(ids: Tensor) -> bool:
    """Return whether ids are one list of distinct ids repeated once, the common case."""
    half = len(ids) // 2
    if not torch.equal(ids[:half], ids[half:]):
        return False
    ordered = ids[:half].sort().values
    return not bool((ordered[1:] == ordered[:-1]).any())


def _two_views(rows: int, device: torch.device) -> Positives:
    """Return the structure of two views of distinct samples, which depends on sizes alone."""
    own = torch.arange(rows, device=device).unsqueeze(1)
    columns = (own + rows // 2) % rows
    return Positives(columns, None, torch.cat([own, columns], dim=1), rows, mirrored=columns)
