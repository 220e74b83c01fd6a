"""The distance polarization regulariser of large-margin contrastive learning.

References:
    - [0] Large-Margin Contrastive Learning with Distance Polarization Regularizer, 2021,
      https://proceedings.mlr.press/v139/chen21n.html
"""

from typing import Any

import torch
from torch import Tensor

from solo_margins.losses._checks import require_embeddings, require_number, require_tile_size
from solo_margins.losses._first_order import differentiable_once
from solo_margins.losses._gather import batch_sizes, first_row, gather_with_gradient
from solo_margins.losses._precision import directions, full_precision
from solo_margins.losses._tiles import row_tiles


class _Band(torch.autograd.Function):
    """Weighted sum of penalties over all pairs of a row and another column, and their count.

    With c the cosine and the band's middle and half width in cosines, the penalty
    |(D - δ⁺)(D - δ⁻)| is (half² - (c - middle)²)/4 inside the band. The work goes by tiles of rows.
    """

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        columns: Tensor | None,
        first: int,
        lower: float,
        upper: float,
        weight: float,
        tile_size: int | None,
    ) -> tuple[Tensor, Tensor]:
        middle, half = 1.0 - lower - upper, upper - lower
        symmetric = columns is None
        every = rows if columns is None else columns
        tiles = row_tiles(rows.shape[0], every.shape[0], tile_size, rows.device)
        needs_gradient = any(ctx.needs_input_grad[:2])
        for_rows = torch.zeros_like(rows)
        for_columns = for_rows if symmetric else torch.zeros_like(every)
        peak = rows.new_full((), half**2)
        total = rows.new_zeros(())
        inside = torch.zeros((), dtype=torch.long, device=rows.device)
        work = rows.new_empty(2, (tiles[0].stop - tiles[0].start) * every.shape[0])
        for tile in tiles:
            # Where rows and columns are the same, what lies left of the tile was seen before.
            left = tile.start if symmetric else 0
            height, width = tile.stop - tile.start, every.shape[0] - left
            offset, penalty = (part[: height * width].view(height, width) for part in work)
            torch.mm(rows[tile], every[left:].t(), out=offset).sub_(middle)
            own = first + tile.start - left
            offset[:, own : own + height].diagonal().fill_(half + 1.0)  # self is in no band
            torch.addcmul(peak, offset, offset, value=-1.0, out=penalty).clamp_min_(0.0)
            total += penalty.sum()
            if symmetric:  # the other triangle
                total += penalty[:, height:].sum()
            is_inside = penalty.sign_()
            inside += _count(is_inside)
            if symmetric:
                inside += _count(is_inside[:, height:])
            if needs_gradient:
                offset.mul_(is_inside)
                for_rows[tile].addmm_(offset, every[left:])
                seen = height if symmetric else 0
                for_columns[left + seen :].addmm_(offset[:, seen:].t(), rows[tile])
        scale = -0.5 * weight
        if symmetric:  # each pair counts in both orders
            scale *= 2.0
        ctx.save_for_backward(for_rows.mul_(scale), None if symmetric else for_columns.mul_(scale))
        ctx.mark_non_differentiable(inside)
        return total * (0.25 * weight), inside

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, gradient: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        for_rows, for_columns = ctx.saved_tensors
        return (
            for_rows * gradient,
            None if for_columns is None else for_columns * gradient,
            *5 * [None],
        )


def _count(is_inside: Tensor) -> Tensor:
    """Return the exact number of ones; a row that holds a NaN counts for nothing."""
    # Row by row, because the sum over a whole tile can exceed what float32 counts.
    return is_inside.sum(dim=1).nan_to_num_(nan=0.0).long().sum()


@full_precision
def distance_polarization_loss_func(
    z: Tensor, lower: float, upper: float, tile_size: int | None = None
) -> Tensor:
    r"""The penalty on pairwise distances inside a band, which drives pairs apart or together.

    .. math::
        R = \frac{1}{M(M-1)} \sum_{i \neq j}
            \left| \min\left( (D_{ij} - \delta^+)(D_{ij} - \delta^-), 0 \right) \right|, \qquad
        D_{ij} = \frac{1 - \cos\theta_{ij}}{2}

    over ordered pairs of all M rows in all processes. One row alone has R = 0. Reading of this
    project: [0] pairs data points; here every view is a row, so views are paired too.

    Args:
        z: (N, D) projected features. Any floating dtype. In several processes they are gathered
            with gradient.
        lower: :math:`\delta^+`, where the band begins; 0 < lower < upper.
        upper: :math:`\delta^-`, where the band ends; lower < upper < 1.
        tile_size: rows of the distance matrix held at a time; None chooses. The numbers are the
            same for every value.

    Returns:
        The penalty, a scalar; float64 for float64 inputs, otherwise float32.

    Raises:
        ValueError: an argument leaves its range or has the wrong shape.

    Example:
        >>> import torch
        >>> f"{distance_polarization_loss_func(torch.eye(4), lower=0.2, upper=0.6):.4f}"
        '0.0300'
    """
    loss, _ = distance_polarization_with_count(z, lower, upper, tile_size)
    return loss


@full_precision
def distance_polarization_with_count(
    z: Tensor, lower: float, upper: float, tile_size: int | None = None
) -> tuple[Tensor, Tensor]:
    r"""The penalty of :func:`distance_polarization_loss_func` and how many pairs it acts on.

    .. math::
        R_0 = \left| \left\{ (i, j) : i \neq j,\ \delta^+ < D_{ij} < \delta^- \right\} \right|

    is the form of [0] that cannot be differentiated; it comes out of the same pass over the
    distances as the penalty.

    Args:
        z: (N, D) projected features; see :func:`distance_polarization_loss_func`.
        lower: :math:`\delta^+`, where the band begins; 0 < lower < upper.
        upper: :math:`\delta^-`, where the band ends; lower < upper < 1.
        tile_size: rows of the distance matrix held at a time; None chooses.

    Returns:
        The penalty, a scalar, and the number of ordered pairs inside the band whose first row is
        one of this process, an int64 scalar without gradient. The SUM over processes, not the
        mean, is the :math:`R_0` of all M rows; it is at most M(M-1).

    Raises:
        ValueError: an argument leaves its range or has the wrong shape.

    Example:
        >>> import torch
        >>> loss, count = distance_polarization_with_count(torch.eye(4), lower=0.2, upper=0.6)
        >>> f"{loss:.4f}", count.item()
        ('0.0300', 12)
    """
    require_embeddings("z", z)
    require_tile_size(tile_size)
    lower, upper = require_band(lower, upper)
    (rows,) = directions(z)
    sizes = batch_sizes(rows)
    count = sum(sizes)
    columns = None if len(sizes) == 1 else gather_with_gradient(rows, sizes)
    if count == 1:
        return 0.0 * rows.sum(), torch.zeros((), dtype=torch.long, device=rows.device)
    # As a mean over all pairs once data parallel training has taken the mean over ranks.
    weight = len(sizes) / (count * (count - 1))
    loss: Tensor
    inside: Tensor
    loss, inside = _Band.apply(rows, columns, first_row(sizes), lower, upper, weight, tile_size)
    return loss, inside


def require_band(lower: float, upper: float) -> tuple[float, float]:
    """Return both ends of the band as floats, or raise ``ValueError``."""
    for name, value in (("lower", lower), ("upper", upper)):
        require_number(
            name,
            value,
            "a number with 0 < lower < upper < 1",
            low=0.0,
            high=1.0,
            open_low=True,
            open_high=True,
        )
    if lower >= upper:
        raise ValueError(
            "lower and upper must be numbers with 0 < lower < upper < 1, "
            f"got {lower!r} and {upper!r}"
        )
    return float(lower), float(upper)
