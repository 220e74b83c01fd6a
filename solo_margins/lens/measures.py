"""Measures one batch: numbers and histograms.

==========================================  =======================================================
``loss``                                    mean of the rows' losses, before any factor
``chance_loss``                             the loss of guessing, log N, without margins
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
from dataclasses import asdict

import torch
from torch import Tensor

from solo_margins.lens.capture import StepCapture
from solo_margins.lens.gradients import AngleGradients, angle_gradients
from solo_margins.lens.records import Histogram, Observation
from solo_margins.losses.engine.geometry import unit_vectors

BINS = 60
# Rows that are measured: enough for a histogram, few enough not to slow training down.
MAX_ROWS = 256
SATURATED = 0.99
SILENCED = 0.1


@torch.no_grad()
def measure(
    captured: StepCapture,
    band: tuple[float, float] | None = None,
    views: int = 2,
    max_rows: int = MAX_ROWS,
    bins: int = BINS,
    step: int = 0,
    epoch: float = 0.0,
) -> Observation:
    """Return the measurements of a step; what was not captured is left out.

    Args:
        captured: what the losses compared, the features and the projections of a step.
        band: lower and upper end of the polarization's band.
        views: number of views that the student projects; if a step projects a view more than
            once, the last projection is used.
        max_rows: measured rows of each comparison, of projections and of features.
        bins: bins of every histogram.
        step: optimiser steps taken before.
        epoch: epochs trained before.
    """
    seen = Observation(step, epoch, scalars={})
    if captured.compared:
        share = max(1, max_rows // len(captured.compared))
        _add_gradients(seen, [angle_gradients(one, share) for one in captured.compared], bins)
    if captured.projections:
        projections = _evenly(torch.cat(captured.projections[-views:]), max_rows)
        _add_distances(seen, projections, band, bins)
    if captured.features:
        features = _evenly(torch.cat(captured.features), 2 * max_rows)
        seen.scalars["effective_rank"] = effective_rank(features)
        seen.scalars["feature_width"] = float(min(features.shape))
    return seen


def _evenly(vectors: Tensor, rows: int) -> Tensor:
    """Return at most ``rows`` rows, evenly spaced, so that every view is included."""
    if len(vectors) <= rows:
        return vectors
    indices = torch.linspace(0, len(vectors) - 1, rows, device=vectors.device).round().long()
    return vectors[indices]


def _add_gradients(seen: Observation, gradients: Sequence[AngleGradients], bins: int) -> None:
    def joined(name: str) -> Tensor:
        return torch.cat([getattr(one, name).reshape(-1) for one in gradients])

    q, positive, negative = joined("q"), joined("positive_angle"), joined("negative_angle")
    highest = {"q": 1.0, "positive_angle": math.pi, "negative_angle": math.pi}
    loss, positive_term = joined("loss"), joined("positive_term")
    for name, values in {
        "loss": loss,
        "loss_positive": positive_term,
        "loss_negative": loss - positive_term,
        "positive_angle": positive,
        "negative_angle": negative,
        "alignment": 2.0 - 2.0 * positive.cos(),
        "q": q,
        "saturated_q": q > SATURATED,
        "silenced_positives": joined("curve") < SILENCED,
    }.items():
        if len(values):
            seen.scalars[name] = (values * 1.0).mean().item()
            if name in highest:
                seen.histograms[name] = Histogram.of(values, 0.0, highest[name], bins)
    if len(positive) and len(negative):
        seen.scalars["angle_separation"] = separation(positive, negative)
    with_margins, plain, negatives, plain_negatives = (
        joined(name).sum().item()
        for name in ("positive", "positive_plain", "negative_sum", "negative_sum_plain")
    )
    for name, part, whole in (
        ("positive_gradient_share", with_margins, with_margins + negatives),
        ("positive_gradient_share_without_margins", plain, plain + plain_negatives),
        ("effective_scale", with_margins, plain),
        ("effective_scale_negatives", negatives, plain_negatives),
    ):
        if whole > 0.0:
            seen.scalars[name] = part / whole
    last = gradients[-1]
    seen.margins.update(asdict(last.margins))
    if last.candidates > 1:
        seen.scalars["chance_loss"] = math.log(last.candidates)


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


def _add_distances(
    seen: Observation, projections: Tensor, band: tuple[float, float] | None, bins: int
) -> None:
    if len(projections) < 2:
        return
    (unit,) = unit_vectors(projections)
    others = ~torch.eye(len(unit), dtype=torch.bool, device=unit.device)
    cosine = (unit @ unit.t())[others].clamp(-1.0, 1.0)
    distance = (1.0 - cosine) / 2.0
    seen.scalars["uniformity"] = (-8.0 * distance).exp().mean().log().item()
    seen.histograms["distance"] = Histogram.of(distance, 0.0, 1.0, bins)
    if band is not None:
        inside = ((distance - band[0]) * (distance - band[1])).clamp(max=0.0).abs()
        seen.scalars["polarization_loss"] = inside.mean().item()
        seen.scalars["pairs_in_band"] = (inside > 0.0).double().mean().item()


def effective_rank(features: Tensor) -> float:
    """Return exp of the entropy of the singular values (Roy & Vetterli, 2007); NaN if not finite.

    >>> round(effective_rank(torch.eye(4)), 3), round(effective_rank(torch.ones(4, 3)), 3)
    (4.0, 1.0)
    """
    wide = features.double()
    if not wide.isfinite().all():
        return math.nan
    # Singular values from the smaller Gram matrix: far cheaper than an SVD.
    gram = wide @ wide.t() if wide.shape[0] <= wide.shape[1] else wide.t() @ wide
    values = torch.linalg.eigvalsh(gram).clamp_min(0.0).sqrt()
    total = values.sum()
    return torch.special.entr(values / total).sum().exp().item() if total > 0 else 0.0
