r"""How large the gradient by every angle is, with margins and without, for vectors a loss compared.

The terms are those of the loss itself: its objective, its margins and its positives. By Eq. 10–21
of the margins paper the gradient of a positive is :math:`w_{il} (1 - q') \sin(\theta + m_1)/\tau`
and that of a negative :math:`q_{ij} \sin\theta/\tau`, times what attenuation adds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from solo_margins.losses import Margins
from solo_margins.losses.capture import CapturedContrast, CapturedPairs
from solo_margins.losses.engine.contrastive import positive_dloss_dsim, positive_side, row_terms
from solo_margins.losses.engine.geometry import angles_between, dloss_dangle
from solo_margins.losses.engine.objective import RowTerms, weighted_log_sum
from solo_margins.losses.engine.positives import Positives
from solo_margins.losses.margins import ContrastSpec

COLUMNS_IN_DETAIL = 4096
"""Negatives of a row that are looked at one by one; a queue may hold many more."""


@dataclass(frozen=True)
class AngleGradients:
    """Angles of pairs and the size of a row's gradient by each of them, not averaged over rows."""

    positive_angle: Tensor
    """(P,) over all rows that have one."""
    negative_angle: Tensor
    """(K,) angles of pairs that are no positives; without negatives only to compare with."""
    positive: Tensor
    """(P,) gradients with margins."""
    positive_without: Tensor
    """(P,) gradients of the same vectors without margins."""
    negative_sum: Tensor
    """Sum of the gradients of all negatives with margins."""
    negative_sum_without: Tensor
    weight: Tensor
    """(P,) s · curve(θ) of each positive as a share of s."""
    q: Tensor
    """(N,) probability of the positives by row; empty where there are no negatives."""
    loss: Tensor
    """(N,) loss of each row, 0 for one without a positive."""
    positive_term: Tensor
    """(N,) −z' of the positives, which the loss lowers."""
    candidates: int | None
    """Number of vectors among which a row's positive is to be found."""
    margins: Margins
    temperature: float | None


def of_contrast(seen: CapturedContrast, max_rows: int) -> AngleGradients:
    """Return the gradients of a contrastive loss, of its first rows."""
    rows = _precise(seen.rows[:max_rows])
    columns = _precise(seen.columns)
    spec, positives = seen.spec, _first(seen.positives, len(rows))
    plain = replace(spec, margins=Margins())
    cosine = rows @ columns.t()
    is_negative = torch.ones_like(cosine, dtype=torch.bool).scatter_(1, positives.excluded, False)
    # Margins change positives alone: what negatives contribute is the same with and without them.
    counts = positives.counts(len(columns), slice(0, len(rows)), rows.dtype)
    log_negatives, shares = _negatives(cosine, is_negative, counts[1], spec)
    side, plain_side = (positive_side(rows, columns, positives, each) for each in (spec, plain))
    terms = row_terms(side.log_sum, log_negatives, counts, spec)
    plain_terms = row_terms(plain_side.log_sum, log_negatives, counts, plain)
    valid = positives.valid
    kept = torch.ones_like(side.logits, dtype=torch.bool) if valid is None else valid
    has_positive = kept.any(dim=1)
    detail = slice(0, COLUMNS_IN_DETAIL)
    cosine, shares = cosine[:, detail], shares[:, detail]
    is_negative = is_negative[:, detail] & has_positive.unsqueeze(1)
    sine = (1.0 - cosine.square()).clamp_min(0.0).sqrt()
    # Of a long queue the part stands for the whole.
    scale = len(columns) / cosine.shape[1] / spec.temperature
    spread = (shares.abs() * sine).masked_fill(~is_negative, 0.0).sum(dim=1) * scale
    negatives = int(torch.as_tensor(counts[1]).max()) if len(rows) else 0
    return AngleGradients(
        positive_angle=side.angles.angle[kept],
        negative_angle=cosine[is_negative].clamp(-1.0, 1.0).acos(),
        positive=_by_angle(side, terms, spec)[kept],
        positive_without=_by_angle(plain_side, plain_terms, plain)[kept],
        negative_sum=(terms.to_negatives * spread).sum(),
        negative_sum_without=(plain_terms.to_negatives * spread).sum(),
        weight=spec.margins.angle_weight(side.angles.angle[kept]) / spec.margins.positive_scale,
        q=(-terms.loss[has_positive]).exp().clamp(0.0, 1.0),
        loss=terms.loss[has_positive],
        positive_term=-side.log_sum[has_positive],
        candidates=negatives + 1,
        margins=spec.margins,
        temperature=spec.temperature,
    )


def of_pairs(seen: CapturedPairs, max_rows: int) -> AngleGradients:
    """Return the gradients of a loss without negatives, of its first rows."""
    rows, targets = _precise(seen.rows[:max_rows]), _precise(seen.targets[:max_rows])
    angles = angles_between(rows, targets)
    margins = seen.margins
    weight = margins.angle_weight(angles.angle)
    others = ~torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    nothing = rows.new_zeros(())
    similarity = margins.similarity(angles.cosine, angles.sine)
    return AngleGradients(
        positive_angle=angles.angle,
        negative_angle=(rows @ targets.t())[others].clamp(-1.0, 1.0).acos(),
        positive=dloss_dangle(angles, margins, torch.ones_like(weight)).abs(),
        positive_without=angles.sine,
        negative_sum=nothing,
        negative_sum_without=nothing,
        weight=weight / margins.positive_scale,
        q=rows.new_empty(0),
        loss=-similarity,
        positive_term=-similarity,
        candidates=None,
        margins=margins,
        temperature=None,
    )


def _precise(vectors: Tensor) -> Tensor:
    """Return vectors in double precision where the device has it."""
    return vectors if vectors.device.type == "mps" else vectors.double()


def _first(positives: Positives, rows: int) -> Positives:
    """Return the positives of the first rows."""
    return replace(
        positives,
        columns=positives.columns[:rows],
        valid=None if positives.valid is None else positives.valid[:rows],
        excluded=positives.excluded[:rows],
        mirrored=None,
        vectors=None if positives.vectors is None else _precise(positives.vectors),
    )


def _negatives(
    cosine: Tensor, is_negative: Tensor, count: Tensor | int, spec: ContrastSpec
) -> tuple[Tensor, Tensor]:
    """Return the negatives' log-sum by row, and each one's share in what goes to all of its row.

    Hard negatives are weighted by terms that depend on the logits themselves, so that a share may
    be negative there.
    """

    def sharpened(sharpness: float) -> Tensor:
        return (cosine * (sharpness / spec.temperature)).masked_fill(~is_negative, -torch.inf)

    hardness = spec.beta
    sharp = sharpened(1.0 + hardness)
    if hardness == 0.0:
        return sharp.logsumexp(dim=1), _softmax(sharp)
    flat = sharpened(hardness)
    log_sum = weighted_log_sum(sharp.logsumexp(dim=1), flat.logsumexp(dim=1), count)
    return log_sum, (1.0 + hardness) * _softmax(sharp) - hardness * _softmax(flat)


def _softmax(logits: Tensor) -> Tensor:
    return logits.softmax(dim=1).nan_to_num(0.0)  # a row without negatives


def _by_angle(side: Any, terms: RowTerms, spec: ContrastSpec) -> Tensor:
    """Return the size of the gradient by the angle of each positive, (N, P)."""
    dloss_dsim = positive_dloss_dsim(side, terms, spec)
    return dloss_dangle(side.angles, spec.margins, dloss_dsim).abs()
