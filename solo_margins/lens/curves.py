"""The effect of margins as functions of angle and probability.

Every curve calls the same methods of `Margins` as the losses do.

    >>> margins = Margins(positive_scale=2.0, curvature=1.0)
    >>> margins.angle_weight(ANGLES[::90]).tolist()
    [2.0, 1.0, 0.0]
"""

import math
from dataclasses import replace

import torch
from torch import Tensor

from solo_margins.lens.records import name_of
from solo_margins.losses import Margins
from solo_margins.losses.engine.row_terms import RowTerms, info_nce
from solo_margins.losses.margins import FIELDS, ContrastSpec

ANGLES = torch.linspace(0.0, math.pi, 181, dtype=torch.float64)
PROBABILITIES = torch.linspace(0.0, 1.0, 181, dtype=torch.float64)
SYMBOLS = {
    "angular": "m₁",
    "subtractive": "m₂",
    "positive_scale": "s",
    "curvature": "c",
    "attenuation": "α",
}


def described(margins: Margins) -> str:
    """Return the margins that are on, in the paper's symbols.

    Examples:
        >>> described(Margins(angular=0.5, curvature=1.5, curve="root"))
        'm₁ = 0.5, c = 1.5, curve = root'
    """
    texts = []
    for name in FIELDS:
        value = getattr(margins, name)
        if value == getattr(Margins, name):
            continue
        shown = value if isinstance(value, str) else f"{value:.3g}"
        texts.append(f"{SYMBOLS.get(name, name)} = {shown}")
    if margins.scaling is not None:
        texts.append(f"scaling = {name_of(margins.scaling)}")
    return ", ".join(texts) or "no margins"


def logits(spec: ContrastSpec, angle: Tensor, q: Tensor | float) -> tuple[Tensor, Tensor]:
    """Return the logits with margins of positives at these angles, and their negatives' log-sum.

    Args:
        spec: margins and temperature; without negatives, as in BYOL, their weight is 0.
        angle: of the positive, in [0, π].
        q: the positive's probability without margins, in [0, 1].
    """
    cosine, q = angle.cos() / spec.temperature, torch.as_tensor(q, dtype=angle.dtype)
    # The negatives that give the positive this probability when there are no margins.
    log_negatives = cosine + torch.log1p(-q) - q.log()
    shifted = spec.margins.similarity(angle.cos(), angle.sin()) / spec.temperature
    return shifted, log_negatives


def row_terms(spec: ContrastSpec, angle: Tensor, q: Tensor | float) -> RowTerms:
    """Return loss and gradients by the logits of rows; see `logits`."""
    return info_nce(*logits(spec, angle, q), spec)


def positive_weight(spec: ContrastSpec, angle: Tensor, q: Tensor | float) -> Tensor:
    r"""Return $s \cdot \mathrm{curve}(\theta)$, times a scaling of one's own (Fig. 2)."""
    weight = spec.margins.angle_weight(angle)
    if spec.margins.scaling is None:
        return weight
    positive, negatives = logits(spec, angle, q)
    # As the losses do, it gets the probability with margins.
    probability = torch.sigmoid(positive - negatives)
    weight, angle, probability = torch.broadcast_tensors(weight, angle, probability)
    return weight * spec.margins.own_weight(angle, probability)


def positive_gradient(spec: ContrastSpec, angle: Tensor, q: Tensor | float) -> Tensor:
    r"""Return the size of $\partial L / \partial \theta_{il}$ of a positive (Fig. 1)."""
    slope = spec.margins.slope(angle.cos(), angle.sin()) * positive_weight(spec, angle, q)
    return (row_terms(spec, angle, q).to_positives * slope / spec.temperature).abs()


def slope_ratio(margins: Margins, angle: Tensor) -> Tensor:
    r"""Return $\sin(\theta + m_1) / \sin\theta$ (Eq. 12, Fig. 2)."""
    return margins.slope(angle.cos(), angle.sin()) / angle.sin()


def probability_ratios(spec: ContrastSpec, angle: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return (1 − q') / (1 − q), attenuation included, and $q'_{ij} / q_{ij}$ of negatives.

    They are the second effect of Eq. 12, 14 and 20 (Fig. 2). A negative's own probability does not
    matter: margins change that of all negatives of a row by one factor.
    """
    terms = row_terms(spec, angle, q)
    return terms.to_positives / (1.0 - q), terms.to_negatives / (1.0 - q)


def total_ratio(spec: ContrastSpec, angle: Tensor, q: float) -> Tensor:
    """Return the factor of a positive's gradient by all margins together."""
    plain = positive_gradient(replace(spec, margins=Margins()), angle, q)
    return positive_gradient(spec, angle, q) / plain
