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
from dataclasses import asdict

import torch
from torch import Tensor

from solo_margins.lens.capture import StepCapture
from solo_margins.lens.gradients import angle_gradients
from solo_margins.lens.records import Histogram, Observation
from solo_margins.losses.capture import CapturedPairs
from solo_margins.losses.engine.geometry import unit_vectors

BINS = 60
# Rows that are measured: enough for a histogram, few enough not to slow training down.
MAX_ROWS = 256
SATURATED = 0.99
SILENCED = 0.1
HIGHEST = {"q": 1.0, "positive_angle": math.pi, "negative_angle": math.pi}  # of histograms


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
        _add_gradients(seen, captured, max_rows, bins)
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
    count = min(rows, len(vectors))
    indices = torch.linspace(0, len(vectors) - 1, count, device=vectors.device)
    return vectors[indices.round().long()]


def _add_gradients(seen: Observation, captured: StepCapture, max_rows: int, bins: int) -> None:
    share = max(1, max_rows // len(captured.compared))
    parts = [angle_gradients(one, share) for one in captured.compared]
    joined = {name: torch.cat([part[name].reshape(-1) for part in parts]) for name in parts[0]}
    loss, positive, negative = (joined[n] for n in ("loss", "positive_angle", "negative_angle"))
    for name, values in {
        "loss": loss,
        "loss_positive": joined["loss_positive"],
        "loss_negative": loss - joined["loss_positive"],
        "positive_angle": positive,
        "negative_angle": negative,
        "alignment": 2.0 - 2.0 * positive.cos(),
        "q": joined["q"],
        "saturated_q": joined["q"] > SATURATED,
        "silenced_positives": joined["curve"] < SILENCED,
    }.items():
        if len(values):
            seen.scalars[name] = (values * 1.0).mean().item()
            if name in HIGHEST:
                seen.histograms[name] = Histogram.of(values, 0.0, HIGHEST[name], bins)
    if len(positive) and len(negative):
        seen.scalars["angle_separation"] = separation(positive, negative)
    total = {name: values.sum().item() for name, values in joined.items()}
    for name, part, rest in (
        ("positive_gradient_share", "positive", "negative"),
        ("positive_gradient_share_without_margins", "positive_plain", "negative_plain"),
    ):
        if total[part] + total[rest] > 0.0:
            seen.scalars[name] = total[part] / (total[part] + total[rest])
    for name, part in (("effective_scale", "positive"), ("effective_scale_negatives", "negative")):
        if total[f"{part}_plain"] > 0.0:
            seen.scalars[name] = total[part] / total[f"{part}_plain"]
    last, candidates = captured.compared[-1], joined["candidates"][-1].item()
    margins = last.margins if isinstance(last, CapturedPairs) else last.spec.margins
    seen.margins.update(asdict(margins))
    if candidates > 1:
        seen.scalars["chance_loss"] = math.log(candidates)


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
