"""Which columns of a similarity matrix are positives of which row, and which are left out."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor


class Counts(NamedTuple):
    """The numbers of positives, at least 1, and of negatives of some rows."""

    positives: Tensor | int
    negatives: Tensor | int


@dataclass(frozen=True)
class Positives:
    """Positives that are known by their column numbers, or by numbers of vectors of their own.

    Attributes:
        columns: (N, P) column numbers, P >= 1, any column where ``valid`` is False.
        valid: (N, P) mask, or None if every row has P positives.
        excluded: (N, E) columns that are not negatives: the positives, and the row itself where it
            is a column; invalid entries of ``columns`` are repetitions here.
        weight: of each row in the mean over all ranks' rows that have a positive; a tensor (N,)
            where only the device knows which they are, 0 for the others.
        mirrored: (N, P) position of the pair (column, row) in the flattened ``columns``, or None
            if rows and columns are different vectors.
        vectors: unit vectors, without gradient, that ``columns`` refers to if positives are not
            columns of the matrix, one of each row; None if they are columns.
        consecutive: the columns that are the rows' only positives, in their order, where they
            are next to each other.
    """

    columns: Tensor
    valid: Tensor | None
    excluded: Tensor
    weight: Tensor | float
    mirrored: Tensor | None = None
    vectors: Tensor | None = None
    consecutive: slice | None = None

    def each_row_has_negatives(self, width: int) -> bool:
        """Return whether it is known that each row has negatives among so many columns."""
        return width > self.excluded.shape[1]

    def partners(self, columns: Tensor) -> Tensor:
        """Return the (N, P, D) vectors of each row's positives."""
        if self.vectors is not None:
            return self.vectors.unsqueeze(1)
        if self.consecutive is not None:
            return columns[self.consecutive].unsqueeze(1)
        return columns[self.columns]

    def add_to_(
        self, matrix: Tensor, number: int, vectors: Tensor, factor: Tensor, scale: float
    ) -> None:
        """Add multiples of vectors, by row, to the columns that are its positives of a number."""
        if self.consecutive is not None:
            matrix[self.consecutive].addcmul_(vectors, factor, value=scale)
        else:
            matrix.index_add_(0, self.columns[:, number], vectors * factor, alpha=scale)

    def counts(self, width: int, part: slice, dtype: torch.dtype) -> Counts:
        """Return how many of ``width`` columns are positives and negatives of some rows."""
        positives, excluded = self.columns.shape[1], self.excluded.shape[1]
        if self.valid is None:
            return Counts(positives, width - excluded)
        found = self.valid[part].sum(dim=1).to(dtype)
        return Counts(found.clamp_min(1.0), found.neg().add_(width - excluded + positives))

    def exclude_(self, matrix: Tensor, part: slice, value: float) -> Tensor:
        """Write a value where a tile has no negatives, and return the tile."""
        return matrix.scatter_(1, self.excluded[part], value)

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

    def of_first(self, rows: int) -> "Positives":
        """Return the positives of the first rows, as masks need them."""
        valid = None if self.valid is None else self.valid[:rows]
        return replace(
            self, columns=self.columns[:rows], valid=valid, excluded=self.excluded[:rows]
        )


@dataclass(frozen=True)
class SameId:
    """Positives that are known by ids on a device, which the host does not read.

    Attributes:
        ids: (N,) ids of the rows.
        all_ids: (M,) ids of the columns.
        number: (N, 1) the column of each row itself.
        sizes: (N,) number of columns with each row's id, itself included.
        weight: (N,) of each row in the mean over all ranks' rows that have a positive, or 0.
    """

    ids: Tensor
    all_ids: Tensor
    number: Tensor
    sizes: Tensor
    weight: Tensor

    def each_row_has_negatives(self, width: int) -> bool:
        """Return whether it is known that each row has negatives among so many columns."""
        return False

    def counts(self, width: int, part: slice, dtype: torch.dtype) -> Counts:
        """Return how many of ``width`` columns are positives and negatives of some rows."""
        sizes = self.sizes[part].to(dtype)
        return Counts((sizes - 1.0).clamp_min_(1.0), width - sizes)

    def same_and_positive(self, part: slice) -> tuple[Tensor, Tensor]:
        """Return which columns have the id of some rows, and which of them are positives."""
        same = self.ids[part].unsqueeze(1) == self.all_ids
        return same, same.scatter(1, self.number[part], False)

    def as_masks(self, columns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the columns and the masks of positives and negatives."""
        same, is_positive = self.same_and_positive(slice(None))
        return columns, is_positive, ~same

    def of_first(self, rows: int) -> "SameId":
        """Return the positives of the first rows."""
        return replace(
            self, ids=self.ids[:rows], number=self.number[:rows], sizes=self.sizes[:rows]
        )


def diagonal_positives(rows: slice, total: int, device: torch.device) -> Positives:
    """Return the structure of query against key: each row's only positive is its own column."""
    columns = torch.arange(rows.start, rows.stop, device=device).unsqueeze(1)
    return Positives(columns, None, columns, 1.0 / total, consecutive=rows)


def paired_positives(partners: Tensor, total: int) -> Positives:
    """Return the structure of a queue: row i's only positive is partner i, not a column."""
    own = torch.arange(partners.shape[0], device=partners.device).unsqueeze(1)
    return Positives(own, None, own[:, :0], 1.0 / total, vectors=partners)


def assigned_positives(assignments: Tensor, dtype: torch.dtype) -> Positives:
    """Return the structure of prototypes: a row's only positive is the assigned one, -1 none."""
    valid = assignments >= 0
    columns = assignments.long().clamp_min(0).unsqueeze(1)
    return Positives(columns, valid.unsqueeze(1), columns, _shares(valid, dtype))


def _shares(counts: Tensor, dtype: torch.dtype) -> Tensor:
    """Return one over the number of what counts, and 0 for what does not."""
    ones = counts.to(dtype)
    return ones / ones.sum().clamp_min_(1.0)


def view_positives(views: int, rows: slice, total: int, device: torch.device) -> Positives:
    """Return the structure of rows that are so many views of distinct samples, view after view.

    Args:
        views: number of views, at least 2.
        rows: which columns are the rows.
        total: number of columns.
        device: of the vectors.
    """
    height = rows.stop - rows.start
    own = torch.arange(height, device=device).unsqueeze(1)
    # The k-th of the other views, counted cyclically from the row's own one.
    steps = torch.arange(1, views, device=device)
    columns = (own + steps * (height // views)) % height
    mirrored = None
    if height == total:
        # From there the row is the (views - k)-th of the others.
        mirrored = columns if views == 2 else columns * (views - 1) + (views - 1 - steps)
    excluded = torch.cat([own, columns], dim=1)
    if rows.start > 0:
        columns, excluded = columns + rows.start, excluded + rows.start
    return Positives(columns, None, excluded, 1.0 / total, mirrored)


def same_id_positives(ids: Tensor, all_ids: Tensor, rows: slice, dtype: torch.dtype) -> SameId:
    """Return the structure of rows against all rows: positives share the id, self is excluded.

    Args:
        ids: (N,) ids of the rows.
        all_ids: (M,) ids of the columns.
        rows: which columns are the rows.
        dtype: of the vectors.
    """
    ordered = all_ids.sort().values
    sizes = torch.searchsorted(ordered, all_ids, right=True) - torch.searchsorted(ordered, all_ids)
    number = torch.arange(rows.start, rows.stop, device=ids.device).unsqueeze(1)
    return SameId(ids, all_ids, number, sizes[rows], _shares(sizes > 1, dtype)[rows])
