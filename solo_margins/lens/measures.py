"""What the lens measures on one batch: numbers and histograms.

==========================================  =======================================================
``loss``                                    mean of the rows' losses, before any factor
``loss_positive``, ``loss_negative``        its two parts: −z' of the positives, and the rest
``positive_angle``, ``negative_angle``      mean angles in radians
``angle_separation``                        probability that a positive is closer than a negative
``q``                                       mean probability of the positives, with margins
``saturated_q``                             share of rows with q above 0.99
``positive_gradient_share``                 share of the gradient by angles that positives get
``positive_gradient_share_without_margins`` the same for the same vectors without margins
``effective_scale``                         gradient of positives with margins over that without
``effective_scale_negatives``               gradient of negatives with margins over that without
``silenced_positives``                      share of positives that the curve leaves < 0.1 of s
``alignment``, ``uniformity``               Wang & Isola, 2020: mean ‖u−v‖² of positives, and
                                            log mean exp(−2‖u−v‖²) of all pairs of projections
``effective_rank``, ``feature_width``       exp of the entropy of the singular values of the
                                            backbone's features, and its largest possible value
``polarization_loss``, ``pairs_in_band``    the regulariser on the projections, and the share of
                                            pairs in its band
==========================================  =======================================================
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from solo_margins.lens.gradients import AngleGradients, of_contrast, of_pairs
from solo_margins.lens.records import Histogram
from solo_margins.losses.capture import Captured, CapturedContrast
from solo_margins.losses.margins import Margins
from solo_margins.losses.plain import unit_vectors

BINS = 60
MAX_ROWS = 256
"""Rows that are looked at: enough for a histogram, few enough not to slow training down."""
SATURATED = 0.99
SILENCED = 0.1


@dataclass(frozen=True)
class Measured:
    """Numbers and histograms of one batch."""

    scalars: dict[str, float]
    histograms: dict[str, Histogram]
    margins: Margins | None = None
    temperature: float | None = None
    candidates: int | None = None


@torch.no_grad()
def measure(
    seen: Sequence[Captured],
    projections: Tensor | None = None,
    features: Tensor | None = None,
    band: tuple[float, float] | None = None,
    max_rows: int = MAX_ROWS,
    bins: int = BINS,
) -> Measured:
    """Return what can be measured of a batch; what was not seen is left out.

    Args:
        seen: what the losses compared, of all pairs of views.
        projections: (N, D) the student's projections of every view.
        features: (N, F) the backbone's features of every view.
        band: lower and upper end of the polarization's band.
        max_rows: rows of each comparison, and of projections and features, that are looked at.
        bins: of every histogram.
    """
    scalars: dict[str, float] = {}
    histograms: dict[str, Histogram] = {}
    share = max(1, max_rows // max(1, len(seen)))
    found = [
        of_contrast(one, share) if isinstance(one, CapturedContrast) else of_pairs(one, share)
        for one in seen
    ]
    if found:
        _add_angles(found, scalars, histograms, bins)
        _add_gradients(found, scalars, histograms, bins)
    if projections is not None:
        _add_distances(_spread_out(projections, max_rows), band, scalars, histograms, bins)
    if features is not None:
        features = _spread_out(features, 2 * max_rows)
        scalars["effective_rank"] = effective_rank(features)
        scalars["feature_width"] = float(min(features.shape))
    last = found[-1] if found else None
    return Measured(
        {name: float(value) for name, value in scalars.items()},
        histograms,
        last.margins if last else None,
        last.temperature if last else None,
        last.candidates if last else None,
    )


def _spread_out(vectors: Tensor, rows: int) -> Tensor:
    """Return at most so many rows, taken evenly, so that every view is among them."""
    if len(vectors) <= rows:
        return vectors
    places = torch.linspace(0, len(vectors) - 1, rows, device=vectors.device).round().long()
    return vectors[places]


def _add_angles(
    found: Sequence[AngleGradients],
    scalars: dict[str, float],
    histograms: dict[str, Histogram],
    bins: int,
) -> None:
    positive = torch.cat([one.positive_angle for one in found])
    negative = torch.cat([one.negative_angle for one in found])
    if len(positive):
        scalars["positive_angle"] = positive.mean().item()
        scalars["alignment"] = (2.0 - 2.0 * positive.cos()).mean().item()
        histograms["positive_angle"] = Histogram.of(positive, 0.0, math.pi, bins)
    if len(negative):
        scalars["negative_angle"] = negative.mean().item()
        histograms["negative_angle"] = Histogram.of(negative, 0.0, math.pi, bins)
    if len(positive) and len(negative):
        scalars["angle_separation"] = separation(positive, negative)


def separation(positive: Tensor, negative: Tensor) -> float:
    """Return the probability that a positive's angle is smaller than a negative's; ties are half.

    >>> separation(torch.tensor([0.1, 1.0]), torch.tensor([0.5, 1.0]))
    0.625
    """
    ordered = negative.sort().values
    below = torch.searchsorted(ordered, positive, right=False)
    up_to = torch.searchsorted(ordered, positive, right=True)
    larger = len(ordered) - 0.5 * (below + up_to).double()
    return (larger.mean() / len(ordered)).item()


def _add_gradients(
    found: Sequence[AngleGradients],
    scalars: dict[str, float],
    histograms: dict[str, Histogram],
    bins: int,
) -> None:
    def total(name: str) -> float:
        return float(sum(getattr(one, name).sum().item() for one in found))

    positive, plain = total("positive"), total("positive_without")
    negative, plain_negative = total("negative_sum"), total("negative_sum_without")
    _ratio(scalars, "positive_gradient_share", positive, positive + negative)
    _ratio(scalars, "positive_gradient_share_without_margins", plain, plain + plain_negative)
    _ratio(scalars, "effective_scale", positive, plain)
    _ratio(scalars, "effective_scale_negatives", negative, plain_negative)
    weight = torch.cat([one.weight for one in found])
    if len(weight):
        scalars["silenced_positives"] = (weight < SILENCED).double().mean().item()
    loss = torch.cat([one.loss for one in found])
    if len(loss):
        pulled = torch.cat([one.positive_term for one in found])
        scalars["loss"] = loss.mean().item()
        scalars["loss_positive"] = pulled.mean().item()
        scalars["loss_negative"] = (loss - pulled).mean().item()
    q = torch.cat([one.q for one in found])
    if len(q):
        scalars["q"] = q.mean().item()
        scalars["saturated_q"] = (q > SATURATED).double().mean().item()
        histograms["q"] = Histogram.of(q, 0.0, 1.0, bins)


def _ratio(scalars: dict[str, float], name: str, part: float, whole: float) -> None:
    if whole > 0.0:
        scalars[name] = part / whole


def _add_distances(
    projections: Tensor,
    band: tuple[float, float] | None,
    scalars: dict[str, float],
    histograms: dict[str, Histogram],
    bins: int,
) -> None:
    unit = unit_vectors(projections)
    if len(unit) < 2:
        return
    others = ~torch.eye(len(unit), dtype=torch.bool, device=unit.device)
    cosine = (unit @ unit.t())[others].clamp(-1.0, 1.0)
    scalars["uniformity"] = (-4.0 * (1.0 - cosine)).exp().mean().log().item()
    distance = (1.0 - cosine) / 2.0
    histograms["distance"] = Histogram.of(distance, 0.0, 1.0, bins)
    if band is not None:
        lower, upper = band
        inside = ((distance - lower) * (distance - upper)).clamp(max=0.0).abs()
        scalars["polarization_loss"] = inside.mean().item()
        scalars["pairs_in_band"] = (inside > 0.0).double().mean().item()


def effective_rank(features: Tensor) -> float:
    """Return exp of the entropy of the singular values (Roy & Vetterli, 2007).

    >>> round(effective_rank(torch.eye(4)), 3), round(effective_rank(torch.ones(4, 3)), 3)
    (4.0, 1.0)
    """
    wide = features.double()
    # Singular values by the smaller Gram matrix: far cheaper than their decomposition.
    gram = wide @ wide.t() if wide.shape[0] <= wide.shape[1] else wide.t() @ wide
    values = torch.linalg.eigvalsh(gram).clamp_min(0.0).sqrt()
    total = values.sum()
    if not total > 0:
        return 0.0
    p = values / total
    return torch.special.entr(p).sum().exp().item()
