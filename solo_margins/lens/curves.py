"""The effect of margins as functions of angle and probability.

Every curve calls the same methods of :class:`Margins` as the losses do.

    >>> series = weight_by_angle(Margins(positive_scale=2.0, curvature=1.0), points=3)
    >>> series.x.tolist(), series.y.tolist()
    ([0.0, 90.0, 180.0], [2.0, 1.0, 0.0])
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from solo_margins.losses import Margins
from solo_margins.losses.engine.objective import RowTerms, info_nce
from solo_margins.losses.margins import FIELDS, ContrastSpec

POINTS = 181
TEMPERATURE = 0.2
# Those of the margins paper (§5.3).
CURVATURES = (1 / 3, 0.5, 0.7, 1.0, 1.5, 2.5, 5.0, math.inf)
ATTENUATIONS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
SYMBOLS = dict(zip(FIELDS, ("m₁", "m₂", "s", "c", "α"), strict=False))


@dataclass(frozen=True)
class Series:
    """A line of a plot; x is in degrees or a probability."""

    x: Tensor
    y: Tensor


def described(margins: Margins) -> str:
    """Return the margins that are on, in the paper's symbols.

    Example:
        >>> described(Margins(angular=0.5, curvature=1.5))
        'm₁ = 0.5, c = 1.5'
    """
    values = {name: getattr(margins, name) for name in FIELDS}
    parts = [
        f"{SYMBOLS.get(name, name)} = {value if isinstance(value, str) else f'{value:.3g}'}"
        for name, value in values.items()
        if value != getattr(Margins(), name)
    ]
    return ", ".join(parts) or "no margins"


def _angles(points: int) -> Tensor:
    return torch.linspace(0.0, math.pi, points, dtype=torch.float64)


def _probabilities(points: int) -> Tensor:
    return torch.linspace(0.0, 1.0, points, dtype=torch.float64)


def row_terms(
    margins: Margins, angle: Tensor, q: Tensor, temperature: float, negatives_weight: float = 1.0
) -> RowTerms:
    """Return loss and gradients by the logits of rows whose positive has these angles.

    Args:
        margins: the margins.
        angle: of the positive, in [0, π].
        q: the positive's probability without margins, in [0, 1].
        temperature: τ.
        negatives_weight: β; 0 where there are positives only, as in BYOL.
    """
    cosine, sine = angle.cos(), angle.sin()
    # The negatives that give the positive this probability when there are no margins.
    log_negatives = cosine / temperature + torch.log1p(-q) - q.log()
    shifted = margins.similarity(cosine, sine) / temperature
    spec = ContrastSpec(temperature, margins, negatives_weight)
    return info_nce(shifted, log_negatives, spec)


def positive_gradient(
    margins: Margins,
    angle: Tensor,
    q: Tensor,
    temperature: float = TEMPERATURE,
    negatives_weight: float = 1.0,
) -> Tensor:
    r"""Return the size of :math:`\partial L / \partial \theta_{il}` of a positive.

    The arguments are those of :func:`row_terms`.
    """
    angle, q = torch.broadcast_tensors(angle, q)
    by_logit = row_terms(margins, angle, q, temperature, negatives_weight).to_positives
    by_angle = by_logit * margins.slope(angle.cos(), angle.sin()) * margins.angle_weight(angle)
    return (by_angle / temperature).abs()


def gradient_by_angle(
    margins: Margins,
    q: float = 0.5,
    temperature: float = TEMPERATURE,
    points: int = POINTS,
    negatives_weight: float = 1.0,
) -> Series:
    """Return the gradient of a positive against its angle in degrees (Fig. 1)."""
    angle = _angles(points)
    gradient = positive_gradient(margins, angle, angle.new_tensor(q), temperature, negatives_weight)
    return Series(angle.rad2deg(), gradient)


def gradient_by_probability(
    margins: Margins, degrees: float = 60.0, temperature: float = TEMPERATURE, points: int = POINTS
) -> Series:
    """Return the gradient of a positive against its probability (Fig. 1)."""
    q = _probabilities(points)
    return Series(q, positive_gradient(margins, _radians(degrees), q, temperature))


def _radians(degrees: float) -> Tensor:
    return torch.tensor(math.radians(degrees), dtype=torch.float64)


def gradient_map(
    margins: Margins, temperature: float = TEMPERATURE, points: int = POINTS
) -> tuple[Tensor, Tensor, Tensor]:
    """Return degrees (A,), probabilities (Q,) and the gradients of a positive (Q, A)."""
    angle, q = _angles(points), _probabilities(points)
    gradients = positive_gradient(margins, angle.unsqueeze(0), q.unsqueeze(1), temperature)
    return angle.rad2deg(), q, gradients


def slope_ratio(margins: Margins, points: int = POINTS) -> Series:
    r"""Return :math:`\sin(\theta + m_1) / \sin\theta` against the angle (Eq. 12, Fig. 2)."""
    angle = _angles(points)[1:-1]
    return Series(angle.rad2deg(), margins.slope(angle.cos(), angle.sin()) / angle.sin())


def probability_ratio(
    margins: Margins,
    degrees: float = 60.0,
    temperature: float = TEMPERATURE,
    points: int = POINTS,
    of_negatives: bool = False,
) -> Series:
    r"""Return (1 − q') / (1 − q), attenuation included, against q (Eq. 12, 14, 20; Fig. 2).

    Args:
        margins: the margins.
        degrees: angle of the positive.
        temperature: τ.
        points: how many probabilities of the positive, the last one left out.
        of_negatives: return :math:`q'_{ij} / q_{ij}` of a negative instead. Its own probability
            does not matter: margins change that of all negatives of a row by one factor.
    """
    q = _probabilities(points)[:-1]
    terms = row_terms(margins, _radians(degrees), q, temperature)
    return Series(q, (terms.to_negatives if of_negatives else terms.to_positives) / (1.0 - q))


def total_ratio(
    margins: Margins, q: float = 0.5, temperature: float = TEMPERATURE, points: int = POINTS
) -> Series:
    """Return the factor of a positive's gradient by all margins together, against its angle."""
    angle = _angles(points)[1:-1]
    changed, plain = (
        positive_gradient(each, angle, angle.new_tensor(q), temperature)
        for each in (margins, Margins())
    )
    return Series(angle.rad2deg(), changed / plain)


def weight_by_angle(margins: Margins, points: int = POINTS) -> Series:
    """Return s · curve(θ) against the angle in degrees (Eq. 18)."""
    angle = _angles(points)
    return Series(angle.rad2deg(), margins.angle_weight(angle))


def weights_by_curvature(margins: Margins, points: int = POINTS) -> dict[float, Series]:
    """Return the weights for the paper's curvatures and that of ``margins``, smallest first."""
    chosen = sorted({*CURVATURES, margins.curvature})
    return {c: weight_by_angle(replace(margins, curvature=c), points) for c in chosen}


def attenuation_by_probability(margins: Margins, points: int = POINTS) -> Series:
    """Return the factor 1 / (1 − αq) against q, without its end at q = 1 (Eq. 20, 21)."""
    q = _probabilities(points)[:-1]
    return Series(q, margins.attenuation_factor(1.0 - q))


def attenuations_by_strength(margins: Margins, points: int = POINTS) -> dict[float, Series]:
    """Return the factor for several α and that of ``margins``, smallest first."""
    return {
        alpha: attenuation_by_probability(replace(margins, attenuation=alpha), points)
        for alpha in sorted({*ATTENUATIONS, margins.attenuation})
    }
