"""BYOL's loss with margins and gradient scalings.

References:
    - [0] Bootstrap Your Own Latent (BYOL), 2020, https://arxiv.org/abs/2006.07733
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
"""

from typing import Any

import torch
from torch import Tensor

from solo_margins.losses._checks import require_same_shape
from solo_margins.losses._directions import angles_between, difference
from solo_margins.losses._first_order import differentiable_once
from solo_margins.losses._observation import report_pairs
from solo_margins.losses._precision import directions, full_precision
from solo_margins.losses._pull import pull_along
from solo_margins.losses.margins import Margins, require_margins


class _PositivesOnly(torch.autograd.Function):
    """Mean of m2 - cos(θ + m1) over pairs, with scaled gradients for the first of each."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, targets: Tensor, margins: Margins) -> Tensor:
        angles = angles_between(rows, targets)
        if ctx.needs_input_grad[0]:
            mass = torch.full_like(angles.angle, 1.0 / rows.shape[0])
            pull = pull_along(angles, margins, mass).unsqueeze(1)
            ctx.save_for_backward(difference(rows, targets, angles.side).mul_(-pull))
        return -margins.similarity(angles.cosine, angles.sine).mean()

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (for_rows,) = ctx.saved_tensors
        return for_rows * gradient, None, None


def negative_similarity(p: Tensor, z: Tensor, margins: Margins) -> Tensor:
    """Return minus the mean similarity with margins of pairs (p_i, z_i), with gradient for p."""
    require_margins(margins)
    require_same_shape("p", p, "z", z)
    if margins.attenuation != 0.0:
        raise ValueError(
            "margins.attenuation must be 0 where there are no negatives, "
            f"got {margins.attenuation!r}"
        )
    rows, targets = directions(p, z.detach())
    report_pairs(rows, targets, margins)
    loss: Tensor = _PositivesOnly.apply(rows, targets, margins)
    return loss


@full_precision
def byol_curv_loss_func(p: Tensor, z: Tensor, margins: Margins = Margins()) -> Tensor:
    r"""BYOL's loss with margins; all pairs are positives.

    .. math::
        L = \frac{1}{N} \sum_i \left( 2 - 2 (\cos(\theta_i + m_1) - m_2) \right)

    Scale and curvature multiply the gradient of pair i by :math:`s \cdot \mathrm{curve}(\theta_i)`
    and leave the value alone. With default margins value and gradient are those of solo-learn's
    ``byol_loss_func``.

    Args:
        p: (N, D) predictions of the student. Any floating dtype.
        z: (N, D) projections of the teacher; they get no gradient.
        margins: the margins; see :class:`Margins`. Attenuation needs negatives and is refused.

    Returns:
        The loss, a scalar; float64 for float64 inputs, otherwise float32.

    Raises:
        ValueError: an argument leaves its range, the shapes differ, or attenuation is not 0.

    Example:
        >>> import torch
        >>> p = torch.eye(4)
        >>> f"{byol_curv_loss_func(p, p.roll(1, dims=1) + p):.4f}"
        '0.5858'
    """
    return 2.0 + 2.0 * negative_similarity(p, z, margins)
