"""What the engine's losses share: unit vectors and angles, tiles of rows, the autograd function."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from solo_margins.losses import plain
from solo_margins.losses.margins import Margins, column

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


class _UnitVectors(torch.autograd.Function):
    """Normalise rows in float32 or better; rows without a direction become zero, gradient too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        wide = x.to(torch.float64 if x.dtype == torch.float64 else torch.float32)
        length = torch.linalg.vector_norm(wide, dim=1, keepdim=True)
        # What is divided by infinity becomes zero: a row without a direction, and its gradient.
        length = F.threshold(length, plain.smallest_norm(x.dtype), torch.inf)
        unit = wide / length
        ctx.save_for_backward(x, unit, length)
        return unit

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Tensor | None:
        """Project the gradient onto the sphere and undo the scale.

        What leaves the range of float16 becomes infinite, so that a gradient scaler sees it.
        """
        x, unit, length = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            return plain_gradients(plain.unit_vectors, [x], [True], upstream)[0]
        radial = torch.linalg.vecdot(upstream, unit).unsqueeze(1)
        tangent = torch.addcmul(upstream, unit, radial, value=-1.0).div_(length)
        return tangent.to(x.dtype)


def unit_vectors(*embeddings: Tensor) -> list[Tensor]:
    """Return the rows of all embeddings at length one, in one dtype; see the plain form."""
    units = [_UnitVectors.apply(x) for x in embeddings]
    common = torch.float64 if any(u.dtype == torch.float64 for u in units) else torch.float32
    return [u.to(common) for u in units]


class Angles(NamedTuple):
    """Angles of pairs of unit vectors with what is needed to follow them back to the vectors.

    Attributes:
        cosine: of each pair.
        sine: of each pair, accurate near 0 and π; None where the margins do not ask for angles.
        direction: vectors that point from the first to the second, up to a part along the first.
    """

    cosine: Tensor
    sine: Tensor | None
    direction: Tensor


def angles_between(first: Tensor, second: Tensor, margins: Margins) -> Angles:
    r"""Return the angles between unit vectors, accurate near 0 and near π.

    The sine is the length of the tangent $v - \cos\theta\, u$, as exact as the vectors; that
    of the arccos of a dot product is off by up to 5e-4 in float32. A pair with a zero vector is at
    π/2.
    """
    cosine = torch.linalg.vecdot(first, second)
    if not margins.follow_angles:
        return Angles(cosine, None, second)
    tangent = _without_part_along(second, first, cosine)
    sine = torch.linalg.vector_norm(tangent, dim=-1).masked_fill_(cosine == 0.0, 1.0)
    return Angles(cosine, sine, tangent)


def direction_back(first: Tensor, second: Tensor, angles: Angles, number: int) -> Tensor:
    """Return vectors that point from the second to the first, up to a part along the second.

    Args:
        first: (N, D) unit vectors.
        second: (N, D), those of this number among the P of each row.
        angles: of all pairs, (N, P).
        number: which of the P.
    """
    if angles.sine is None:
        return first
    return _without_part_along(first, second, angles.cosine[:, number])


def _without_part_along(vector: Tensor, unit: Tensor, cosine: Tensor) -> Tensor:
    """Return vectors without their parts along unit vectors, to which they have these cosines."""
    return torch.addcmul(vector, unit, cosine.unsqueeze(-1), value=-1.0)


def positive_grad(
    cosine: Tensor,
    sine: Tensor | None,
    margins: Margins,
    by_similarity: Tensor,
    q: Tensor | None,
    is_positive: Tensor | None = None,
) -> Tensor:
    """Return the factor of each pair's direction in the gradient by its first vector.

    That is the derivative by the cosine with all that scales it, but for a scale that is one number
    for all rows, which is left to the caller.

    Args:
        cosine: of the pairs.
        sine: of the pairs; None where the margins do not ask for angles.
        margins: the margins of the rows.
        by_similarity: the derivative of the loss by the similarity with margins of each pair.
        q: the probability of each pair, of a shape that fits the cosines; None for 0.
        is_positive: which of the pairs count; None for all.
    """
    factor = by_similarity
    if isinstance(margins.positive_scale, Tensor):
        factor = factor * column(margins.positive_scale, cosine).clamp_max(largest_factor(cosine))
    if sine is None:
        return factor
    has_curve = not math.isinf(margins.curvature)
    if has_curve or margins.scaling is not None:
        angle = torch.atan2(sine, cosine)
        if margins.scaling is not None:
            q = torch.zeros_like(angle) if q is None else q
            factor = factor * margins.own_weight(angle, q, is_positive)
        if has_curve:
            factor = factor * margins.curve_of(angle)
    if margins.has_angular:
        # The direction has the length of the sine, so that the product is bounded. A sine as small
        # as rounding errors has no direction: what is divided by infinity becomes zero.
        length = F.threshold(sine, 8 * torch.finfo(sine.dtype).eps, torch.inf)
        factor = factor * margins.slope(cosine, sine) / length
    return factor


def largest_factor(like: Tensor) -> float:
    """Return how large a factor of a gradient may be, such that sums of products stay finite."""
    return torch.finfo(like.dtype).max ** 0.75
