"""Unit vectors and the angles between them, exact where the textbook formulas are not."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from solo_margins.losses._first_order import differentiable_once


def smallest_norm(dtype: torch.dtype) -> float:
    """Return the norm below which a vector of this dtype has no direction."""
    return 1e-12 if dtype == torch.float32 else torch.finfo(dtype).tiny


def _is_ordinary(length: Tensor) -> bool:
    """Whether all lengths are far from under- and overflow; a GPU is not made to wait for it."""
    if length.device.type != "cpu":
        return False
    shortest, longest = torch.aminmax(length)
    return shortest.item() > 1e-10 and longest.item() < 1e15  # False for a NaN


def _careful_unit(wide: Tensor, smallest: float) -> tuple[Tensor, Tensor]:
    """Return unit vectors and inverse lengths of rows that may be huge, tiny or zero."""
    # Dividing by the largest entry first keeps squares in range.
    largest = torch.linalg.vector_norm(wide, torch.inf, dim=1, keepdim=True)
    largest.clamp_min_(torch.finfo(wide.dtype).tiny)
    scaled = wide / largest
    length = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)
    missing = length * largest < smallest
    inverse = length.reciprocal_().masked_fill_(missing, 0.0)
    return scaled.mul_(inverse), inverse / largest


class _UnitVectors(torch.autograd.Function):
    """Normalise rows in float32 or better; rows without a direction become zero, gradient too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Return the rows of ``x`` at length one."""
        compute = torch.float64 if x.dtype == torch.float64 else torch.float32
        wide = x.to(compute)
        length = torch.linalg.vector_norm(wide, dim=1, keepdim=True)
        if _is_ordinary(length):
            inverse = length.reciprocal_()
            unit = wide * inverse
        else:
            unit, inverse = _careful_unit(wide, smallest_norm(x.dtype))
        ctx.save_for_backward(unit, inverse)
        ctx.dtype = x.dtype
        return unit

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Project the gradient onto the sphere, undo the scale, saturate instead of overflowing."""
        unit, inverse_norm = ctx.saved_tensors
        radial = torch.linalg.vecdot(gradient, unit).unsqueeze(1)
        tangent = torch.addcmul(gradient, unit, radial, value=-1.0).mul_(inverse_norm)
        limit = torch.finfo(ctx.dtype).max
        return tangent.clamp_(-limit, limit).to(ctx.dtype)


def unit_vectors(x: Tensor) -> Tensor:
    """Return the rows of ``x`` at length one, in float64 for float64 and in float32 otherwise.

    A row shorter than ``smallest_norm`` has no direction: it becomes zero and so does its gradient.
    """
    unit: Tensor = _UnitVectors.apply(x)
    return unit


class Angles(NamedTuple):
    """Angles of pairs of unit vectors with what is needed to follow them back to the vectors."""

    angle: Tensor
    cosine: Tensor
    sine: Tensor
    side: Tensor  # +1 where the angle is at most π/2, else -1


def difference(first: Tensor, second: Tensor, side: Tensor) -> Tensor:
    """Return ``second - side * first``, which points from first to second up to a radial part."""
    return torch.addcmul(second, first, side.unsqueeze(-1), value=-1.0)


def angles_between(first: Tensor, second: Tensor) -> Angles:
    r"""Return the angles between rows of unit vectors, accurate near 0 and near π.

    With :math:`h = \|v \mp u\|/2` the angle is :math:`2\arcsin h` or :math:`\pi - 2\arcsin h`; the
    arccos of a dot product is off by up to 5e-4 in float32. A pair with a zero vector is at π/2.
    """
    dot = torch.linalg.vecdot(first, second)
    side = torch.ones_like(dot).copysign_(dot)
    half = torch.linalg.vector_norm(difference(first, second, side), dim=-1).mul_(0.5)
    # Exactly 0 is a right angle, also where a zero vector is the reason.
    half = half.masked_fill_(dot == 0, math.sqrt(0.5))
    square = half.square()
    narrow = half.asin().mul_(2.0)
    return Angles(
        # narrow on the near side, π - narrow on the far one
        angle=torch.addcmul((1.0 - side).mul_(math.pi / 2), side, narrow),
        cosine=torch.addcmul(side, side, square, value=-2.0),
        sine=(1.0 - square).sqrt_().mul_(half).mul_(2.0),
        side=side,
    )
