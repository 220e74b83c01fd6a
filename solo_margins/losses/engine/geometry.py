"""What the engine's losses share: unit vectors and angles, tiles of rows, the autograd function."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from solo_margins.losses import plain
from solo_margins.losses.margins import Margins

# Entries of one tile: on a CPU it should stay in the cache, a GPU wants large launches.
TILE_ENTRIES = {"cpu": 1 << 20, "cuda": 1 << 26}
SMALLEST_TILE = 64


def row_tiles(rows: int, columns: int, tile_size: int | None, device: torch.device) -> list[slice]:
    """Return slices that cover all rows of a (rows, columns) matrix, the first one the largest."""
    if tile_size is None:
        entries = TILE_ENTRIES.get(device.type, TILE_ENTRIES["cuda"])
        tile_size = rows if rows * columns <= entries else max(SMALLEST_TILE, entries // columns)
    return [slice(start, min(start + tile_size, rows)) for start in range(0, rows, tile_size)]


def plain_gradients(
    plain_form: Callable[..., Tensor],
    tensors: Sequence[Tensor],
    needed: Sequence[bool],
    upstream: Tensor,
) -> list[Tensor | None]:
    """Return the gradients of the plain form, which can be differentiated once more."""
    # As views, so that a tensor which is passed twice gets a gradient for each position.
    inputs = [tensor.view_as(tensor) for tensor in tensors]
    sources = [x for x, is_needed in zip(inputs, needed, strict=True) if is_needed]
    found = torch.autograd.grad(plain_form(*inputs), sources, upstream, create_graph=True)
    gradients: list[Tensor | None] = []
    waiting = list(found)
    for is_needed in needed:
        gradients.append(waiting.pop(0) if is_needed else None)
    return gradients


class EngineLoss(torch.autograd.Function):
    """A scalar loss of tensors, differentiable any number of times.

    ``EngineLoss.apply(engine, plain_form, *tensors)`` takes two functions of the tensors. The
    engine returns the loss and one gradient or None for each tensor; ``needed`` tells which are
    required. The plain form returns the loss by autograd; it runs where gradients are
    differentiated.
    """

    @staticmethod
    def forward(
        ctx: Any, engine: Callable[..., Any], plain_form: Callable[..., Tensor], *tensors: Tensor
    ) -> Tensor:
        """Return the engine's loss and keep its gradients."""
        ctx.plain_form = plain_form
        loss, gradients = engine(*tensors, needed=ctx.needs_input_grad[2:])
        ctx.save_for_backward(*tensors, *gradients)
        return loss

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Return the engine's gradients, the plain form's under ``create_graph=True``."""
        needed = ctx.needs_input_grad[2:]
        # Read once: activation checkpointing allows no second unpacking.
        saved = ctx.saved_tensors
        tensors, gradients = saved[: len(needed)], saved[len(needed) :]
        if torch.is_grad_enabled():
            scaled = plain_gradients(ctx.plain_form, tensors, needed, upstream)
        else:
            scaled = [None if g is None else g * upstream for g in gradients]
        return None, None, *scaled


def _is_ordinary(length: Tensor, smallest: float) -> bool:
    """Whether all lengths are far from under- and overflow; a GPU is not made to wait for it."""
    if length.device.type != "cpu":
        return False
    shortest, longest = torch.aminmax(length)
    # False for a NaN
    return shortest.item() > max(1e-10, smallest) and longest.item() < 1e15


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
        smallest = plain.smallest_norm(x.dtype)
        if _is_ordinary(length, smallest):
            inverse = length.reciprocal_()
            unit = wide * inverse
        else:
            unit, inverse = _careful_unit(wide, smallest)
        ctx.save_for_backward(x, unit, inverse)
        return unit

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Tensor | None:
        """Project the gradient onto the sphere and undo the scale.

        What leaves the range of float16 becomes infinite, so that a gradient scaler sees it.
        """
        x, unit, inverse = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            return plain_gradients(plain.unit_vectors, [x], [True], upstream)[0]
        radial = torch.linalg.vecdot(upstream, unit).unsqueeze(1)
        tangent = torch.addcmul(upstream, unit, radial, value=-1.0).mul_(inverse)
        return tangent.to(x.dtype)


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


def positive_grad(angles: Angles, margins: Margins, dloss_dsim: Tensor) -> Tensor:
    """Return the factor of each pair's chord in the gradient by its first vector.

    That is minus the derivative by the angle, scale and curvature applied, divided by the angle's
    sine. The chord has the length of the sine: the quotient may grow as the angle goes to 0 or π,
    the product is bounded.

    Args:
        angles: the angles of the pairs.
        margins: the margins.
        dloss_dsim: the derivative of the loss by the similarity with margins of each pair.
    """
    slope = margins.slope(angles.cosine, angles.sine)
    by_angle = dloss_dsim * slope * margins.angle_weight(angles.angle)
    info = torch.finfo(by_angle.dtype)
    factor = by_angle / angles.sine.clamp_min(info.eps**2)
    # A bound far beyond any use that keeps sums of products finite.
    limit = info.max**0.75
    return factor.clamp(-limit, limit)
