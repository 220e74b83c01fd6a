"""Measures one batch: numbers and histograms.

========================================  =========================================================
``loss``                                  mean of the rows' losses, before any factor
``chance_loss``                           the loss of guessing: log of 1 + negatives per positive,
                                          where β = 1 and no margin is in the logits
``loss_positive``, ``loss_negative``      its two parts: −z' of the positives, and the rest
``positive_angle``, ``negative_angle``    mean angles in radians
``angle_separation``                      probability that a positive is closer than a negative
``q``                                     mean probability of the positives, with margins
``saturated_q``                           share of rows with q above 0.99
``temperature``                           τ of the step, where there are negatives
``negatives_weight``                      β of the generalised loss, where it is not 1
``pull``, ``push``                        how strongly positives attract a row's vector and how
                                          strongly negatives repel it, margins included
``effective_scale``                       pull with margins over that without
``effective_scale_negatives``             push with margins over that without
``silenced_positives``                    share of positives that the curve leaves < 0.1 of s
``alignment``, ``uniformity``             Wang & Isola, 2020: mean ‖u−v‖² of positives, and
                                          log mean exp(−2‖u−v‖²) of all pairs of projections
``rankme``                                RankMe of the backbone's features: how many directions
                                          they use
``rankme_rows``, ``feature_width``        the number of rows that it is of, and its largest possible
                                          value, the smaller side of these rows
``alpha_req``                             α-ReQ: how fast the eigenvalues of the features'
                                          covariance fall, where there are 20 or more
``polarization_loss``, ``pairs_in_band``  the regulariser on the projections, and the share of
                                          pairs in its band
========================================  =========================================================
"""

import math
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from solo_margins.lens.capture import StepCapture
from solo_margins.lens.records import Histogram, Observation
from solo_margins.losses import Margins
from solo_margins.losses.capture import Captured, CapturedContrast, CapturedPairs
from solo_margins.losses.engine.geometry import unit_vectors
from solo_margins.losses.engine.positives import Positives, SameId, diagonal_positives
from solo_margins.losses.margins import ContrastSpec
from solo_margins.losses.plain import row_losses

BINS = 60
# Rows that are measured: enough for a histogram, few enough not to slow training down.
MAX_ROWS = 256
# Entries of the matrix of cosines, which autograd holds several times: fewer rows of a long queue.
MOST_PAIRS = 2**21
SATURATED = 0.99
SILENCED = 0.1
# α-ReQ is fitted to the 11th to the 100th eigenvalue, and not to fewer than ten.
FITTED = slice(10, 100)
FEWEST_EIGENVALUES = 20
# What is measured of rows and pairs, but not averaged.
NOT_AVERAGED = ("pull_plain", "push_plain")
Band = tuple[float, float] | None
# Histograms of measured pairs and rows, which begin at 0, and where they end.
HIGHEST = {"q": 1.0, "positive_angle": math.pi, "negative_angle": math.pi}


@torch.no_grad()
def measure(
    captured: StepCapture, band: Band = None, views: int = 2, step: int = 0, epoch: float = 0.0
) -> Observation:
    """Return the measurements of a step; what was not captured is left out.

    Args:
        captured: what the losses compared, the features and the projections of a step.
        band: lower and upper end of the polarization's band.
        views: number of views that the student projects, times the parts that each is projected
            in; if a step projects a view more than once, the last projection is used.
        step: optimiser steps taken before.
        epoch: epochs trained before.
    """
    seen = Observation(step, epoch, scalars={})
    if captured.compared:
        _add_comparisons(seen, captured)
    if captured.projections:
        projections = _evenly(torch.cat(captured.projections[-views:]), MAX_ROWS)
        _add_distances(seen, projections, band)
    if captured.features:
        features = _evenly(torch.cat(captured.features), 2 * MAX_ROWS)
        _add_spectrum(seen, features)
    return seen


def _evenly(vectors: Tensor, rows: int) -> Tensor:
    """Return at most ``rows`` rows, evenly spaced, so that every view is included."""
    count = min(rows, len(vectors))
    indices = torch.linspace(0, len(vectors) - 1, count, device=vectors.device)
    return vectors[indices.round().long()]


def _add_comparisons(seen: Observation, captured: StepCapture) -> None:
    share = max(1, MAX_ROWS // len(captured.compared))
    parts = [row_measures(one, share) for one in captured.compared]
    joined = {name: torch.cat([part[name].reshape(-1) for part in parts]) for name in parts[0]}
    for name, values in joined.items():
        if name not in NOT_AVERAGED and len(values):
            seen.scalars[name] = (values * 1.0).mean().item()
            if name in HIGHEST:
                seen.histograms[name] = Histogram.of(values, 0.0, HIGHEST[name], BINS)
    if {"positive_angle", "negative_angle"} <= seen.histograms.keys():
        angles = joined["positive_angle"], joined["negative_angle"]
        seen.scalars["angle_separation"] = separation(*angles)
    for name, side in (("effective_scale", "pull"), ("effective_scale_negatives", "push")):
        without_margins = joined[f"{side}_plain"].sum().item()
        if without_margins > 0.0:
            seen.scalars[name] = joined[side].sum().item() / without_margins
    last: Any = captured.compared[-1]
    seen.margins.update(asdict(getattr(last, "spec", last).margins))
    if isinstance(last, CapturedContrast) and "q" in seen.scalars:
        seen.scalars["temperature"] = float(last.spec.temperature)
        if last.spec.negatives_weight != 1.0:
            seen.scalars["negatives_weight"] = last.spec.negatives_weight


def row_measures(captured: Captured, max_rows: int) -> dict[str, Tensor]:
    r"""Return what is measured of rows and pairs, not averaged.

    The gradient by a row's own vector :math:`u_i` has two parts, which are vectors in its tangent
    plane. In units of 1/τ their lengths are

    .. math::
        P_i = \tau \Big\| \sum_{j\ \mathrm{positive}}
            \frac{\partial L_i}{\partial \cos\theta_{ij}} (v_j - \cos\theta_{ij} u_i) \Big\|,
        \qquad
        N_i = \tau \Big\| \sum_{j\ \mathrm{negative}}
            \frac{\partial L_i}{\partial \cos\theta_{ij}} (v_j - \cos\theta_{ij} u_i) \Big\|,

    without margins :math:`P_i = (1 - q_{il}) \sin\theta_{il}` for one positive. The derivatives
    are those of the loss in its plain form, by autograd, with all margins.

    Only the first rows that a loss compared are measured, against all of their columns. With N rows
    that have a positive, P positives and K other pairs the result has

    - ``positive_angle`` (P,) and ``negative_angle`` (K,), also of pairs that a loss leaves out;
    - ``pull`` (N,) and ``push`` (N,); the latter is empty where there are no negatives;
    - ``pull_plain`` and ``push_plain``, those of the same vectors without margins;
    - ``loss`` (N,), and ``loss_positive`` (N,), −z' of the positives, which the loss lowers;
    - ``q`` (N,), the probability of the positives in the softmax of the logits with margins, or
      pos / (pos + Ng) with debiased or hard negatives, whatever β is; empty where the loss is not
      given any negatives;
    - ``chance_loss`` (N,), the loss where all cosines are equal and no margin is in the logits;
      empty where β is not 1;
    - ``loss_negative``, ``alignment``, ``saturated_q`` and ``silenced_positives`` of each.
    """
    if isinstance(captured, CapturedPairs):
        # There are no negatives; the angles of the other pairs are shown in their place.
        columns, spec = captured.targets, ContrastSpec(1.0, captured.margins, negatives_weight=0.0)
        positives: Positives | SameId = diagonal_positives(
            slice(0, len(columns)), len(columns), columns.device
        )
    else:
        columns, spec, positives = captured.columns, captured.spec, captured.positives
    rows = captured.rows[: max(1, min(max_rows, MOST_PAIRS // len(columns)))]
    columns, is_positive, is_negative = positives.of_first(len(rows)).as_masks(columns)
    has_positive = is_positive.any(dim=1)
    is_negative &= has_positive.unsqueeze(1)

    dtype = torch.float32 if rows.device.type == "mps" else torch.float64
    rows, columns = rows.to(dtype), columns.to(dtype)
    cosine = rows @ columns.t()
    sine = (1.0 - cosine.square()).clamp_min(0.0).sqrt()
    measured: dict[str, Tensor] = {}
    for name, margins in (("_plain", Margins()), ("", spec.margins)):
        with torch.enable_grad():
            leaf = cosine.detach().requires_grad_()
            loss = row_losses(leaf, is_positive, is_negative, replace(spec, margins=margins))
            (by_cosine,) = torch.autograd.grad(loss.sum(), leaf)
        for side, pairs in (("pull", is_positive), ("push", is_negative)):
            force = (spec.temperature * by_cosine * pairs) @ columns
            force -= (force * rows).sum(dim=1, keepdim=True) * rows
            measured[side + name] = force.norm(dim=1)[has_positive]
    loss = loss.detach()[has_positive]
    angle = cosine.clamp(-1.0, 1.0).acos()
    positive_angle = angle[is_positive]
    curve = spec.margins.angle_weight(positive_angle) / spec.margins.positive_scale
    logits = spec.margins.similarity(cosine, sine) / spec.temperature
    log_positives = logits.masked_fill(~is_positive, -torch.inf).logsumexp(dim=1)[has_positive]
    log_q = -loss
    if spec.negatives_weight != 1.0:
        # At β = 1 the loss of a row is −log q, with debiased and hard negatives too.
        standard = replace(spec, negatives_weight=1.0)
        log_q = -row_losses(cosine, is_positive, is_negative, standard)[has_positive]
    q = log_q.exp().clamp(0.0, 1.0)
    negatives_per_positive = is_negative.sum(dim=1) / is_positive.sum(dim=1)
    chance_loss = negatives_per_positive[has_positive].to(dtype).log1p()
    # What does not exist is empty.
    nothing = loss[:0]
    has_negatives = bool(is_negative.any())
    if isinstance(captured, CapturedPairs) or not has_negatives:
        q = nothing
    if spec.negatives_weight != 1.0 or not has_negatives:
        chance_loss = nothing
    if spec.negatives_weight == 0.0 or not has_negatives:
        measured["push"] = measured["push_plain"] = nothing
    return {
        **measured,
        "positive_angle": positive_angle,
        "negative_angle": angle[is_negative],
        "loss": loss,
        "chance_loss": chance_loss,
        "loss_positive": -log_positives,
        "loss_negative": loss + log_positives,
        "alignment": 2.0 - 2.0 * positive_angle.cos(),
        "q": q,
        "saturated_q": q > SATURATED,
        "silenced_positives": curve < SILENCED,
    }


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


def _add_distances(seen: Observation, projections: Tensor, band: Band) -> None:
    if len(projections) < 2:
        return
    (unit,) = unit_vectors(projections)
    others = ~torch.eye(len(unit), dtype=torch.bool, device=unit.device)
    cosine = (unit @ unit.t())[others].clamp(-1.0, 1.0)
    distance = (1.0 - cosine) / 2.0
    seen.scalars["uniformity"] = (-8.0 * distance).exp().mean().log().item()
    seen.histograms["distance"] = Histogram.of(distance, 0.0, 1.0, BINS)
    if band is not None:
        inside = ((distance - band[0]) * (distance - band[1])).clamp(max=0.0).abs()
        seen.scalars["polarization_loss"] = inside.mean().item()
        seen.scalars["pairs_in_band"] = (inside > 0.0).double().mean().item()


def _add_spectrum(seen: Observation, features: Tensor) -> None:
    seen.scalars["rankme_rows"] = float(len(features))
    seen.scalars["feature_width"] = float(min(features.shape))
    if not features.isfinite().all():
        seen.scalars["rankme"] = math.nan
        return
    spectrum = singular_values(features)
    seen.scalars["rankme"] = rankme(spectrum)
    alpha = alpha_req(spectrum)
    if alpha is not None:
        seen.scalars["alpha_req"] = alpha


def singular_values(features: Tensor) -> Tensor:
    """Return the singular values of finite features in float64, the largest first."""
    wide = features.double()
    # From the smaller Gram matrix: far cheaper than an SVD.
    gram = wide @ wide.t() if wide.shape[0] <= wide.shape[1] else wide.t() @ wide
    return torch.linalg.eigvalsh(gram).flip(0).clamp_min(0.0).sqrt()


def rankme(spectrum: Tensor) -> float:
    r"""Return RankMe, a smooth rank, from the singular values :math:`\sigma_k` of features.

    .. math::
        \mathrm{RankMe} = \exp\Big(-\sum_k p_k \log p_k\Big), \qquad
        p_k = \frac{\sigma_k}{\sum_j \sigma_j} + 10^{-7}

    Garrido et al., RankMe, 2023, https://arxiv.org/abs/2210.02885, Eq. 1, on features that are not
    centred. Its authors take 25,600 rows and mostly projections; with fewer rows it is smaller.
    Features that are all 0 have the rank 0.

    >>> round(rankme(torch.ones(4)), 3), round(rankme(torch.tensor([2.0, 0.0, 0.0])), 3)
    (4.0, 1.0)
    """
    total = spectrum.sum()
    if total == 0.0:
        return 0.0
    share = spectrum / total + 1e-7
    return torch.special.entr(share).sum().exp().item()


def alpha_req(spectrum: Tensor) -> float | None:
    r"""Return α of α-ReQ from the singular values of features, None if fewer than 20 are not 0.

    The eigenvalues :math:`\lambda_j = \sigma_j^2` of the features' covariance fall about as
    :math:`j^{-\alpha}`: near 1 is good for linear probes, larger means that few directions carry
    most of the variance. α is the slope of :math:`\log \lambda_j` over :math:`-\log j` for j from
    11 to 100 by least squares with weights :math:`1/j`.

    Agrawal et al., α-ReQ, 2022, https://arxiv.org/abs/2202.05808; range and weights are those of
    the authors' code. They centre the features. Here the mean stays in, as in RankMe: it is most of
    the first eigenvalue, which the fit leaves out, and changes α by some hundredths.

    >>> power_law = torch.arange(1.0, 65.0) ** -0.6
    >>> round(alpha_req(power_law), 3)
    1.2
    """
    eigenvalues = spectrum.double().square()
    # What is smaller is rounding.
    smallest = len(eigenvalues) * torch.finfo(torch.float64).eps * eigenvalues.max()
    eigenvalues = eigenvalues[eigenvalues > smallest]
    if len(eigenvalues) < FEWEST_EIGENVALUES:
        return None
    number = torch.arange(1, len(eigenvalues) + 1, device=spectrum.device).double()[FITTED]
    weight = 1.0 / number / (1.0 / number).sum()
    x = -number.log()
    y = eigenvalues[FITTED].log()
    x = x - (weight * x).sum()
    return ((weight * x * y).sum() / (weight * x.square()).sum()).item()
