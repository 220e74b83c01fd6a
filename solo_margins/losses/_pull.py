"""How strongly a pair of positives is drawn together, as a factor of its difference vector."""

import torch
from torch import Tensor

from solo_margins.losses._directions import Angles
from solo_margins.losses.margins import Margins


def gradient_by_angle(angles: Angles, margins: Margins, mass: Tensor) -> Tensor:
    """Return minus the derivative of a loss by the angle of each pair.

    Args:
        angles: the angles of the pairs.
        margins: margins, scale and curvature to apply.
        mass: minus the derivative of the loss by the similarity of each pair.
    """
    return mass * margins.slope(angles.cosine, angles.sine) * margins.angle_weight(angles.angle)


def pull_along(angles: Angles, margins: Margins, mass: Tensor) -> Tensor:
    """Return the derivative of a loss by the angle of each pair, divided by the angle's sine.

    The tangent that the result multiplies has the length of the sine: the quotient may grow as the
    angle goes to 0 or π, the product stays bounded.

    Args:
        angles: the angles of the pairs.
        margins: margins, scale and curvature to apply.
        mass: minus the derivative of the loss by the similarity of each pair.
    """
    by_angle = gradient_by_angle(angles, margins, mass)
    info = torch.finfo(by_angle.dtype)
    pull = by_angle / angles.sine.clamp_min(info.eps**2)
    # A bound far beyond any use that keeps sums of products finite.
    limit = info.max**0.75
    return pull.clamp(-limit, limit)
