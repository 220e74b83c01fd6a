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
``silenced_positives``                    share of positives to which the curve, and a scaling of
                                          one's own, leave less than a tenth of s
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
from dataclasses import replace

import torch
from torch import Tensor

from solo_margins.lens.capture import StepCapture
from solo_margins.lens.records import Histogram, Observation, recorded_margins
from solo_margins.losses import Margins
from solo_margins.losses.capture import Captured, CapturedContrast, CapturedPairs
from solo_margins.losses.engine.geometry import unit_vectors
from solo_margins.losses.margins import ContrastSpec
from solo_margins.losses.plain import pair_losses, row_losses

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
# Histograms of measured pairs and rows, which begin at 0, and where they end.
HIGHEST = {"q": 1.0, "positive_angle": math.pi, "negative_angle": math.pi}
Band = tuple[float, float] | None
Measured = dict[str, Tensor]


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
        _add_comparisons(seen, captured.compared)
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


def _add_comparisons(seen: Observation, compared: list[Captured]) -> None:
    """Add what is measured of rows and pairs: means, histograms and margins."""
    rows_of_each = max(1, MAX_ROWS // len(compared))
    parts: dict[str, list[Tensor]] = {}
    for one in compared:
        for name, values in row_measures(one, rows_of_each).items():
            parts.setdefault(name, []).append(values)
    joined = {name: torch.cat(values) for name, values in parts.items()}
    for name, values in joined.items():
        if name in NOT_AVERAGED or len(values) == 0:
            continue
        seen.scalars[name] = _wide(values).mean().item()
        if name in HIGHEST:
            seen.histograms[name] = Histogram.of(values, 0.0, HIGHEST[name], BINS)

    if {"positive_angle", "negative_angle"} <= seen.histograms.keys():
        angles = joined["positive_angle"], joined["negative_angle"]
        seen.scalars["angle_separation"] = separation(*angles)
    for name, side in (("effective_scale", "pull"), ("effective_scale_negatives", "push")):
        if side not in joined:
            continue
        without_margins = joined[f"{side}_plain"].sum().item()
        if without_margins > 0.0:
            seen.scalars[name] = joined[side].sum().item() / without_margins

    last = compared[-1]
    if isinstance(last, CapturedPairs):
        seen.margins.update(recorded_margins(last.margins))
        return
    seen.margins.update(recorded_margins(last.spec.margins))
    if "q" in seen.scalars:
        seen.scalars["temperature"] = float(last.spec.temperature)
        if last.spec.negatives_weight != 1.0:
            seen.scalars["negatives_weight"] = last.spec.negatives_weight


def row_measures(captured: Captured, max_rows: int) -> Measured:
    r"""Return what is measured of rows and pairs, not averaged; what does not exist is left out.

    The gradient by a row's own vector $u_i$ has two parts, which are vectors in its tangent
    plane. In units of 1/τ their lengths are

    $$
    P_i = \tau \Big\| \sum_{j\ \mathrm{positive}}
    \frac{\partial L_i}{\partial \cos\theta_{ij}} (v_j - \cos\theta_{ij} u_i) \Big\|,
    \qquad
    N_i = \tau \Big\| \sum_{j\ \mathrm{negative}}
    \frac{\partial L_i}{\partial \cos\theta_{ij}} (v_j - \cos\theta_{ij} u_i) \Big\|,
    $$

    without margins $P_i = (1 - q_{il}) \sin\theta_{il}$ for one positive. The derivatives
    are those of the loss in its plain form, by autograd, with all margins.

    Only the first rows that a loss compared are measured, against all of their columns. With N rows
    that have a positive, P positives and K other pairs the result has

    - ``positive_angle`` (P,) and ``negative_angle`` (K,), also of pairs that a loss leaves out;
    - ``pull`` (N,), and where there are negatives ``push`` (N,);
    - ``pull_plain`` and ``push_plain``, those of the same vectors without margins;
    - ``loss`` (N,), and ``loss_positive`` (N,), −z' of the positives, which the loss lowers;
    - ``q`` (N,), where the loss is given negatives: the probability of the positives in the softmax
      of the logits with margins, or pos / (pos + Ng) with weighted negatives, whatever β is;
    - ``chance_loss`` (N,), where β is 1: the loss where all cosines are equal and no margin is in
      the logits;
    - ``loss_negative``, ``alignment``, ``saturated_q`` and ``silenced_positives`` of each.
    """
    if isinstance(captured, CapturedPairs):
        return _measures_of_pairs(captured, max_rows)
    return _measures_of_contrast(captured, max_rows)


def _measures_of_pairs(captured: CapturedPairs, max_rows: int) -> Measured:
    """Measure rows with one target each; the targets of other rows are no part of the loss."""
    columns = captured.targets
    rows = _first(captured.rows, columns, max_rows)
    margins = captured.margins.of_rows(slice(len(rows)))
    rows, columns = _wide(rows), _wide(columns)
    targets = columns[: len(rows)]
    angle = (rows @ columns.t()).clamp(-1.0, 1.0).acos()
    is_positive = torch.eye(*angle.shape, dtype=torch.bool, device=angle.device)
    # Nothing competes with the positives, whose probability is 0 for the functions that ask.
    measured = _measures_of_angles(angle, is_positive, ~is_positive, margins, angle.new_zeros(1))
    for suffix, used in (("", margins), ("_plain", Margins())):
        with torch.enable_grad():
            leaf = rows.detach().requires_grad_()
            loss = pair_losses(leaf, targets, used)
            (by_row,) = torch.autograd.grad(loss.sum(), leaf)
        measured[f"pull{suffix}"] = _tangent(by_row, rows).norm(dim=1)
        if used is margins:
            measured["loss"] = loss.detach()
            measured["loss_positive"] = loss.detach()
    return measured


def _measures_of_contrast(captured: CapturedContrast, max_rows: int) -> Measured:
    """Measure rows against columns, among which are positives and negatives."""
    rows = _first(captured.rows, captured.columns, max_rows)
    positives = captured.positives.of_first(len(rows))
    columns, is_positive, is_negative = positives.as_masks(captured.columns)
    has_positive = is_positive.any(dim=1)
    is_negative &= has_positive.unsqueeze(1)
    margins = captured.spec.margins.of_rows(slice(len(rows)))
    spec = replace(captured.spec, margins=margins)
    rows, columns = _wide(rows), _wide(columns)
    cosine = rows @ columns.t()
    angle = cosine.clamp(-1.0, 1.0).acos()

    loss, pull, push = _forces(rows, columns, cosine, is_positive, is_negative, spec)
    without = replace(spec, margins=Margins())
    _, plain_pull, plain_push = _forces(rows, columns, cosine, is_positive, is_negative, without)
    # At β = 1 the loss of a row is −log q, with debiased and hard negatives too.
    standard = replace(spec, negatives_weight=1.0)
    q = row_losses(cosine, is_positive, is_negative, standard).neg().exp().clamp(0.0, 1.0)

    sine = (1.0 - cosine.square()).clamp_min(0.0).sqrt()
    logits = margins.similarity(cosine, sine) / spec.temperature
    log_positives = logits.masked_fill(~is_positive, -torch.inf).logsumexp(dim=1)

    measured = _measures_of_angles(angle, is_positive, is_negative, margins, q)
    of_rows = {
        "pull": pull,
        "pull_plain": plain_pull,
        "loss": loss,
        "loss_positive": -log_positives,
        "loss_negative": loss + log_positives,
    }
    if is_negative.any():
        of_rows["q"] = q
        of_rows["saturated_q"] = q > SATURATED
        if spec.negatives_weight > 0.0:
            of_rows["push"] = push
            of_rows["push_plain"] = plain_push
        if spec.negatives_weight == 1.0:
            per_positive = is_negative.sum(dim=1) / is_positive.sum(dim=1)
            of_rows["chance_loss"] = per_positive.to(loss.dtype).log1p()
    for name, values in of_rows.items():
        measured[name] = values[has_positive]
    return measured


def _first(rows: Tensor, columns: Tensor, max_rows: int) -> Tensor:
    """Return the rows that are measured: fewer where there are many columns."""
    return rows[: max(1, min(max_rows, MOST_PAIRS // len(columns)))]


def _wide(vectors: Tensor) -> Tensor:
    """Return vectors in float64; in float32 on Apple's GPUs, which do not have it."""
    return vectors.float() if vectors.device.type == "mps" else vectors.double()


def _forces(
    rows: Tensor,
    columns: Tensor,
    cosine: Tensor,
    is_positive: Tensor,
    is_negative: Tensor,
    spec: ContrastSpec,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss of each row, and how strongly its positives pull and its negatives push."""
    with torch.enable_grad():
        leaf = cosine.detach().requires_grad_()
        loss = row_losses(leaf, is_positive, is_negative, spec)
        (by_cosine,) = torch.autograd.grad(loss.sum(), leaf)
    by_logit = spec.temperature * by_cosine
    pull = _tangent((by_logit * is_positive) @ columns, rows).norm(dim=1)
    push = _tangent((by_logit * is_negative) @ columns, rows).norm(dim=1)
    return loss.detach(), pull, push


def _tangent(vectors: Tensor, rows: Tensor) -> Tensor:
    """Return the part of each vector that is orthogonal to its row, a unit vector."""
    return vectors - (vectors * rows).sum(dim=1, keepdim=True) * rows


def _measures_of_angles(
    angle: Tensor, is_positive: Tensor, is_negative: Tensor, margins: Margins, q: Tensor
) -> Measured:
    """Return what the angles of pairs say; q is that of each row, or of all."""
    positive_angle = angle[is_positive]
    left = margins.curve_of(positive_angle)
    if margins.scaling is not None:
        q_of_pairs = q.unsqueeze(1).expand_as(angle)[is_positive]
        left = left * margins.own_weight(positive_angle, q_of_pairs)
    return {
        "positive_angle": positive_angle,
        "negative_angle": angle[is_negative],
        "alignment": 2.0 - 2.0 * positive_angle.cos(),
        "silenced_positives": left < SILENCED,
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
    r"""Return RankMe, a smooth rank, from the singular values $\sigma_k$ of features.

    $$
    \mathrm{RankMe} = \exp\Big(-\sum_k p_k \log p_k\Big), \qquad
    p_k = \frac{\sigma_k}{\sum_j \sigma_j} + 10^{-7}
    $$

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

    The eigenvalues $\lambda_j = \sigma_j^2$ of the features' covariance fall about as
    $j^{-\alpha}$: near 1 is good for linear probes, larger means that few directions carry
    most of the variance. α is the slope of $\log \lambda_j$ over $-\log j$ for j from
    11 to 100 by least squares with weights $1/j$.

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
