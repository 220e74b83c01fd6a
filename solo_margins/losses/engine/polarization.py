"""The penalty on distances inside a band, tile by tile, with its gradient and its count."""

from collections.abc import Sequence

import torch
from torch import Tensor

from solo_margins.losses import plain
from solo_margins.losses.engine.geometry import EngineLoss, row_tiles, unit_vectors
from solo_margins.losses.gather import batch_sizes, gather, own_rows


def polarization(
    z: Tensor, lower: float, upper: float, tile_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return the mean penalty over ordered pairs of rows, and this rank's number in the band."""
    (rows,) = unit_vectors(z)
    sizes = batch_sizes(rows)
    own, count = own_rows(sizes), sum(sizes)
    # As a mean over all pairs once data parallel training has taken the mean over ranks.
    weight = len(sizes) / max(count * (count - 1), 1)
    inside = torch.zeros((), dtype=torch.long, device=rows.device)

    def by_autograd(rows: Tensor, columns: Tensor | None = None) -> Tensor:
        every = rows if columns is None else columns
        return plain.band_penalties(rows, every, own, lower, upper)[0] * weight

    def engine(
        rows: Tensor, columns: Tensor | None = None, *, needed: Sequence[bool]
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the weighted sum of penalties over all pairs of a row and another column.

        With c the cosine and the band's middle and half width in cosines, the penalty
        |(D - δ⁺)(D - δ⁻)| is (half² - (c - middle)²)/4 inside the band. Without columns they are
        the rows: each pair is computed once and counts in both orders.
        """
        middle, half = 1.0 - lower - upper, upper - lower
        every = rows if columns is None else columns
        tiles = row_tiles(len(rows), len(every), tile_size, rows.device)
        for_rows = torch.zeros_like(rows)
        for_columns = for_rows if columns is None else torch.zeros_like(every)
        peak = rows.new_full((), half**2)
        total = rows.new_zeros(())
        work = rows.new_empty(2, tiles[0].stop * len(every))
        for tile in tiles:
            height = tile.stop - tile.start
            # What lies left of the tile was seen before; what lies right of it counts twice.
            left, right = (tile.start, height) if columns is None else (0, 0)
            width = len(every) - left
            offset, penalty = (part[: height * width].view(height, width) for part in work)
            torch.mm(rows[tile], every[left:].t(), out=offset).sub_(middle)
            itself = own.start + tile.start - left
            offset[:, itself : itself + height].diagonal().fill_(half + 1.0)  # is in no band
            torch.addcmul(peak, offset, offset, value=-1.0, out=penalty).clamp_min_(0.0)
            counted = [penalty, penalty[:, right:]] if columns is None else [penalty]
            for part in counted:
                total += part.sum()
            is_inside = penalty.sign_()
            for part in counted:
                inside.add_(_count(part))
            if any(needed):
                offset.mul_(is_inside)
                for_rows[tile].addmm_(offset, every[left:])
                for_columns[left + right :].addmm_(offset[:, right:].t(), rows[tile])
        loss = total * (0.25 * weight)
        if columns is None:
            return loss, [for_rows.mul_(-weight)]
        return loss, [for_rows.mul_(-0.5 * weight), for_columns.mul_(-0.5 * weight)]

    vectors = [rows] if len(sizes) == 1 else [rows, gather(rows, sizes, with_gradient=True)]
    return EngineLoss.apply(engine, by_autograd, *vectors), inside


def _count(is_inside: Tensor) -> Tensor:
    """Return the exact number of ones; a row that holds a NaN counts for nothing."""
    # Row by row, because the sum over a whole tile can exceed what float32 counts.
    return is_inside.sum(dim=1).nan_to_num_(nan=0.0).long().sum()
