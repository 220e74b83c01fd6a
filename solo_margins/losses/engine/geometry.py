"""Unit vectors and the angles between them, exact where the textbook formulas are not."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from solo_margins.losses import plain
from solo_margins.losses.engine.function import plain_gradients
from solo_margins.losses.margins import Margins


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
        wide = x.to(torch.float64 if x.dtype == torch.float64 else torch.float32)
        length = torch.linalg.vector_norm(wide, dim=1, keepdim=True)
        if _is_ordinary(length):
            inverse = length.reciprocal_()
            unit = wide * inverse
        else:
            unit, inverse = _careful_unit(wide, plain.smallest_norm(x.dtype))
        ctx.save_for_backward(x, unit, inverse)
        return unit

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Tensor | None:
        """Project the gradient onto the sphere, undo the scale, saturate instead of overflowing."""
        x, unit, inverse = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            return plain_gradients(plain.unit_vectors, [x], [True], upstream)[0]
        radial = torch.linalg.vecdot(upstream, unit).unsqueeze(1)
        tangent = torch.addcmul(upstream, unit, radial, value=-1.0).mul_(inverse)
        limit = torch.finfo(x.dtype).max
        return tangent.clamp_(-limit, limit).to(x.dtype)


def unit_vectors(*embeddings: Tensor) -> list[Tensor]:
    """Return the rows of all embeddings at length one, in one dtype; see the plain form."""
    units = [_UnitVectors.apply(x) for x in embeddings]
    common = torch.float64 if any(u.dtype == torch.float64 for u in units) else torch.float32
    return [u.to(common) for u in units]


class Angles(NamedTuple):
    """Angles of pairs of unit vectors with what is needed to follow them back to the vectors."""

    angle: Tensor
    cosine: Tensor
    sine: Tensor
    side: Tensor  # +1 where the angle is at most π/2, else -1


def chord(first: Tensor, second: Tensor, side: Tensor) -> Tensor:
    """Return ``second - side * first``, which points from first to second up to a radial part."""
    return torch.addcmul(second, first, side.unsqueeze(-1), value=-1.0)


def angles_between(first: Tensor, second: Tensor) -> Angles:
    r"""Return the angles between rows of unit vectors, accurate near 0 and near π.

    With :math:`h = \|v \mp u\|/2` the angle is :math:`2\arcsin h` or :math:`\pi - 2\arcsin h`; the
    arccos of a dot product is off by up to 5e-4 in float32. A pair with a zero vector is at π/2.
    """
    dot = torch.linalg.vecdot(first, second)
    side = torch.ones_like(dot).copysign_(dot)
    half = torch.linalg.vector_norm(chord(first, second, side), dim=-1).mul_(0.5)
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


def dloss_dangle(angles: Angles, margins: Margins, dloss_dsim: Tensor) -> Tensor:
    """Return the derivative of a loss by the angle of each pair, scale and curvature applied.

    Args:
        angles: the angles of the pairs.
        margins: the margins.
        dloss_dsim: the derivative of the loss by the similarity with margins of each pair.
    """
    slope = margins.slope(angles.cosine, angles.sine)
    return -dloss_dsim * slope * margins.angle_weight(angles.angle)


def positive_grad(angles: Angles, margins: Margins, dloss_dsim: Tensor) -> Tensor:
    """Return the factor of each pair's chord in the gradient by its first vector.

    That is minus the derivative by the angle, divided by the angle's sine. The chord has the
    length of the sine: the quotient may grow as the angle goes to 0 or π, the product is bounded.
    """
    by_angle = dloss_dangle(angles, margins, dloss_dsim)
    info = torch.finfo(by_angle.dtype)
    factor = -by_angle / angles.sine.clamp_min(info.eps**2)
    # A bound far beyond any use that keeps sums of products finite.
    limit = info.max**0.75
    return factor.clamp(-limit, limit)
