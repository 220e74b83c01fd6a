"""The engine's distance polarization: penalties inside a band, counted in the same pass."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from solo_margins.losses import plain
from solo_margins.losses.engine import geometry
from solo_margins.losses.gather import batch_sizes, gather, own_rows


def polarization(
    z: Tensor, lower: float, upper: float, tile_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return the mean penalty over ordered pairs of rows, and this rank's number in the band."""
    (rows,) = geometry.unit_vectors(z)
    sizes = batch_sizes(rows)
    count = sum(sizes)
    band = _Band(
        lower=lower,
        upper=upper,
        own=own_rows(sizes),
        # As a mean over all pairs once data parallel training has taken the mean over ranks.
        weight=len(sizes) / max(count * (count - 1), 1),
        tile_size=tile_size,
        inside=torch.zeros((), dtype=torch.long, device=rows.device),
    )
    if len(sizes) == 1:
        loss = geometry.EngineLoss.apply(band.of_rows, band.by_autograd, rows)
    else:
        columns = gather(rows, sizes, with_gradient=True)
        loss = geometry.EngineLoss.apply(band.of_columns, band.by_autograd, rows, columns)
    return loss, band.inside


@dataclass(frozen=True)
class _Band:
    """The weighted sum of penalties over pairs of a row and another column, and its gradients.

    With c the cosine and the band's middle and half width in cosines, the penalty
    |(D - δ⁺)(D - δ⁻)| is (half² - (c - middle)²)/4 inside the band.

    Attributes:
        lower: δ⁺, where the band begins.
        upper: δ⁻, where the band ends.
        own: which columns are the rows.
        weight: of each pair.
        tile_size: rows of the matrix of distances held at a time; None chooses.
        inside: the number of pairs in the band, which the computation of the loss adds to.
    """

    lower: float
    upper: float
    own: slice
    weight: float
    tile_size: int | None
    inside: Tensor

    def by_autograd(self, rows: Tensor, columns: Tensor | None = None) -> Tensor:
        """Return the loss in its plain form."""
        compared = rows if columns is None else columns
        total, _ = plain.band_penalties(rows, compared, self.own, self.lower, self.upper)
        return total * self.weight

    def of_rows(
        self, vectors: Tensor, needed: Sequence[bool]
    ) -> tuple[Tensor, list[Tensor | None]]:
        """Return loss and gradient of rows against themselves.

        Each pair is computed once and counts in both orders.
        """
        tiles = geometry.row_tiles(len(vectors), len(vectors), self.tile_size, vectors.device)
        work = vectors.new_empty(2, tiles[0].stop * len(vectors))
        total = vectors.new_zeros(())
        gradient = torch.zeros_like(vectors)
        for tile in tiles:
            height = tile.stop - tile.start
            # Earlier tiles have seen what lies left of this one.
            right = vectors[tile.start :]
            offset, penalty = self._penalties(vectors[tile], right, 0, work)
            total += penalty.sum() + penalty[:, height:].sum()
            is_inside = penalty.sign_()
            self._count(is_inside)
            self._count(is_inside[:, height:])
            if needed[0]:
                offset.mul_(is_inside)
                gradient[tile].addmm_(offset, right)
                gradient[tile.stop :].addmm_(offset[:, height:].t(), vectors[tile])
        return total * (0.25 * self.weight), [gradient.mul_(-self.weight)]

    def of_columns(
        self, rows: Tensor, columns: Tensor, needed: Sequence[bool]
    ) -> tuple[Tensor, list[Tensor | None]]:
        """Return loss and gradients of this rank's rows against the columns of all ranks."""
        tiles = geometry.row_tiles(len(rows), len(columns), self.tile_size, rows.device)
        work = rows.new_empty(2, tiles[0].stop * len(columns))
        total = rows.new_zeros(())
        for_rows, for_columns = torch.zeros_like(rows), torch.zeros_like(columns)
        for tile in tiles:
            itself = self.own.start + tile.start
            offset, penalty = self._penalties(rows[tile], columns, itself, work)
            total += penalty.sum()
            is_inside = penalty.sign_()
            self._count(is_inside)
            if any(needed):
                offset.mul_(is_inside)
                for_rows[tile].addmm_(offset, columns)
                for_columns.addmm_(offset.t(), rows[tile])
        factor = -0.5 * self.weight
        return total * (0.25 * self.weight), [for_rows.mul_(factor), for_columns.mul_(factor)]

    def _penalties(
        self, rows: Tensor, columns: Tensor, itself: int, work: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return cosines minus the band's middle, and four times the penalties.

        Args:
            rows: (N, D) unit vectors.
            columns: (M, D) unit vectors; those from number ``itself`` on are the rows.
            itself: the column that is the first row.
            work: two buffers for the results.
        """
        middle, half = 1.0 - self.lower - self.upper, self.upper - self.lower
        shape = len(rows), len(columns)
        entries = shape[0] * shape[1]
        offset = work[0, :entries].view(shape)
        penalty = work[1, :entries].view(shape)
        torch.mm(rows, columns.t(), out=offset).sub_(middle)
        # A row is not in the band of itself.
        offset[:, itself : itself + len(rows)].diagonal().fill_(half + 1.0)
        highest = rows.new_full((), half**2)
        torch.addcmul(highest, offset, offset, value=-1.0, out=penalty).clamp_min_(0.0)
        return offset, penalty

    def _count(self, is_inside: Tensor) -> None:
        """Add the number of ones to that of the pairs inside the band.

        Row by row, because the sum over a whole tile can exceed what float32 counts. The sign of a
        NaN is 0, so that it is in no band.
        """
        self.inside.add_(is_inside.sum(dim=1).long().sum())
