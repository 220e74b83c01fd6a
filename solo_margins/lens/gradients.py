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
from solo_margins.losses._contrast import Contrast, positive_mass, positive_side, row_terms
from solo_margins.losses._directions import angles_between
from solo_margins.losses._objectives import RowTerms, weighted_log_sum
from solo_margins.losses._observation import SeenContrast, SeenPairs
from solo_margins.losses._positives import Positives
from solo_margins.losses._pull import gradient_by_angle

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


def of_contrast(seen: SeenContrast, max_rows: int) -> AngleGradients:
    """Return the gradients of a contrastive loss, of its first rows."""
    rows = _precise(seen.rows[:max_rows])
    columns = _precise(seen.columns)
    setting = replace(seen.setting, weight=1.0, positives=_first(seen.setting.positives, len(rows)))
    plain = replace(setting, margins=Margins(), objective=_without_margins(setting.objective))
    positives = setting.positives
    cosine = rows @ columns.t()
    is_negative = torch.ones_like(cosine, dtype=torch.bool).scatter_(1, positives.excluded, False)
    # Margins change positives alone: what negatives contribute is the same with and without them.
    log_negatives, shares = _negatives(cosine, is_negative, setting)
    whole = slice(0, len(rows))
    side, plain_side = (positive_side(rows, columns, each) for each in (setting, plain))
    terms = row_terms(side, log_negatives, setting, whole)
    plain_terms = row_terms(plain_side, log_negatives, plain, whole)
    valid = positives.valid
    kept = torch.ones_like(side.logits, dtype=torch.bool) if valid is None else valid
    has_positive = kept.any(dim=1)
    detail = slice(0, COLUMNS_IN_DETAIL)
    cosine, shares = cosine[:, detail], shares[:, detail]
    is_negative = is_negative[:, detail] & has_positive.unsqueeze(1)
    sine = (1.0 - cosine.square()).clamp_min(0.0).sqrt()
    # Of a long queue the part stands for the whole.
    scale = len(columns) / cosine.shape[1] / setting.temperature
    spread = (shares.abs() * sine).masked_fill(~is_negative, 0.0).sum(dim=1) * scale
    count = positives.count_negatives(whole, rows.dtype)
    negatives = int(torch.as_tensor(count).max()) if len(rows) else 0
    return AngleGradients(
        positive_angle=side.angles.angle[kept],
        negative_angle=cosine[is_negative].clamp(-1.0, 1.0).acos(),
        positive=_by_angle(side, terms, setting)[kept],
        positive_without=_by_angle(plain_side, plain_terms, plain)[kept],
        negative_sum=(terms.to_negatives * spread).sum(),
        negative_sum_without=(plain_terms.to_negatives * spread).sum(),
        weight=setting.margins.angle_weight(side.angles.angle[kept])
        / setting.margins.positive_scale,
        q=(-terms.loss[has_positive]).exp().clamp(0.0, 1.0),
        loss=terms.loss[has_positive],
        positive_term=-side.log_sum[has_positive],
        candidates=negatives + 1,
        margins=setting.margins,
        temperature=setting.temperature,
    )


def of_pairs(seen: SeenPairs, max_rows: int) -> AngleGradients:
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
        positive=gradient_by_angle(angles, margins, torch.ones_like(weight)).abs(),
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
    negatives = positives.negatives
    return replace(
        positives,
        columns=positives.columns[:rows],
        valid=None if positives.valid is None else positives.valid[:rows],
        excluded=positives.excluded[:rows],
        mirrored=None,
        negatives=negatives if isinstance(negatives, int) else negatives[:rows],
        vectors=None if positives.vectors is None else _precise(positives.vectors),
    )


def _without_margins(objective: Any) -> Any:
    return replace(objective, margins=Margins())


def _negatives(cosine: Tensor, is_negative: Tensor, setting: Contrast) -> tuple[Tensor, Tensor]:
    """Return the negatives' log-sum by row, and each one's share in what goes to all of its row.

    Hard negatives are weighted by terms that depend on the logits themselves, so that a share may
    be negative there.
    """

    def sharpened(sharpness: float) -> Tensor:
        return (cosine * (sharpness / setting.temperature)).masked_fill(~is_negative, -torch.inf)

    hardness = setting.objective.hardness
    sharp = sharpened(1.0 + hardness)
    if hardness == 0.0:
        return sharp.logsumexp(dim=1), _softmax(sharp)
    flat = sharpened(hardness)
    count = setting.positives.count_negatives(slice(0, len(cosine)), cosine.dtype)
    log_sum = weighted_log_sum(sharp.logsumexp(dim=1), flat.logsumexp(dim=1), count)
    return log_sum, (1.0 + hardness) * _softmax(sharp) - hardness * _softmax(flat)


def _softmax(logits: Tensor) -> Tensor:
    return logits.softmax(dim=1).nan_to_num(0.0)  # a row without negatives


def _by_angle(side: Any, terms: RowTerms, setting: Contrast) -> Tensor:
    """Return the size of the gradient by the angle of each positive, (N, P)."""
    mass = positive_mass(side, terms, setting)
    return gradient_by_angle(side.angles, setting.margins, mass).abs()
