r"""Sizes of gradients by angle, with and without margins, for captured vectors.

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
from solo_margins.losses.capture import Captured, CapturedPairs
from solo_margins.losses.engine.contrastive import positive_dloss_dsim, positive_side, row_terms
from solo_margins.losses.engine.geometry import dloss_dangle
from solo_margins.losses.engine.objective import weighted_log_sum
from solo_margins.losses.engine.positives import Positives, diagonal_positives
from solo_margins.losses.margins import ContrastSpec

# Negatives of a row that are measured one by one; a queue may hold many more.
DETAILED_COLUMNS = 4096


@dataclass(frozen=True)
class AngleGradients:
    """Angles of pairs and the size of a row's gradient by each of them, not averaged over rows.

    Attributes:
        margins: of the loss.
        positive_angle: (P,) over all rows that have one.
        negative_angle: (K,) angles of the other pairs, which a loss may leave out.
        positive: (P,) gradients with margins.
        positive_plain: (P,) gradients of the same vectors without margins.
        negative_sum: () sum of the gradients of all negatives with margins.
        negative_sum_plain: () the same without margins.
        loss: (N,) loss of each row that has a positive.
        positive_term: (N,) −z' of the positives, which the loss lowers.
        candidates: number of vectors among which a row's positive is to be found; 1 where there
            are no negatives.
    """

    margins: Margins
    positive_angle: Tensor
    negative_angle: Tensor
    positive: Tensor
    positive_plain: Tensor
    negative_sum: Tensor
    negative_sum_plain: Tensor
    loss: Tensor
    positive_term: Tensor
    candidates: int

    @property
    def q(self) -> Tensor:
        """(N,) probability of the positives by row; empty where there are no negatives."""
        return (-self.loss).exp().clamp(0.0, 1.0)[: None if self.candidates > 1 else 0]

    @property
    def curve(self) -> Tensor:
        """(P,) what the curve leaves of the gradient of each positive."""
        return self.margins.angle_weight(self.positive_angle) / self.margins.positive_scale


def angle_gradients(captured: Captured, max_rows: int) -> AngleGradients:
    """Return the gradients by angle of the first rows that a loss compared."""
    rows = _precise(captured.rows[:max_rows])
    every_row = slice(0, len(rows))
    if isinstance(captured, CapturedPairs):
        columns = _precise(captured.targets[:max_rows])
        positives = diagonal_positives(every_row, len(rows), rows.device)
        # There are no negatives; the angles of the other pairs are shown in their place.
        spec = ContrastSpec(1.0, captured.margins, negatives_weight=0.0)
    else:
        columns, spec = _precise(captured.columns), captured.spec
        positives = _first(captured.positives, len(rows))
    counts = positives.counts(len(columns), every_row, rows.dtype)
    cosine = rows @ columns.t()
    is_negative = torch.ones_like(cosine, dtype=torch.bool).scatter_(1, positives.excluded, False)
    # Margins change positives alone: what negatives contribute is the same with and without them.
    log_negatives, shares = _negatives(cosine, is_negative, counts[1], spec)

    sides, terms, by_angle = [], [], []
    for each in (spec, replace(spec, margins=Margins())):
        sides.append(positive_side(rows, columns, positives, each))
        terms.append(row_terms(sides[-1].log_sum, log_negatives, counts, each))
        dloss_dsim = positive_dloss_dsim(sides[-1], terms[-1], each)
        by_angle.append(dloss_dangle(sides[-1].angles, each.margins, dloss_dsim).abs())

    angle = sides[0].angles.angle
    is_positive = torch.ones_like(angle).bool() if positives.valid is None else positives.valid
    has_positive = is_positive.any(dim=1)
    cosine, shares = cosine[:, :DETAILED_COLUMNS], shares[:, :DETAILED_COLUMNS]
    is_negative = is_negative[:, :DETAILED_COLUMNS] & has_positive.unsqueeze(1)
    sine = (1.0 - cosine.square()).clamp_min(0.0).sqrt()
    # The measured part of a long queue stands for all of it.
    scale = len(columns) / cosine.shape[1] / spec.temperature
    spread = (shares.abs() * sine).masked_fill(~is_negative, 0.0).sum(dim=1) * scale
    return AngleGradients(
        margins=spec.margins,
        positive_angle=angle[is_positive],
        negative_angle=cosine[is_negative].clamp(-1.0, 1.0).acos(),
        positive=by_angle[0][is_positive],
        positive_plain=by_angle[1][is_positive],
        negative_sum=(terms[0].to_negatives * spread).sum(),
        negative_sum_plain=(terms[1].to_negatives * spread).sum(),
        loss=terms[0].loss[has_positive],
        positive_term=-sides[0].log_sum[has_positive],
        candidates=1
        if isinstance(captured, CapturedPairs)
        else 1 + int(torch.as_tensor(counts[1]).max()),
    )


def _precise(vectors: Tensor) -> Tensor:
    """Return vectors in double precision where the device has it."""
    return vectors if vectors.device.type == "mps" else vectors.double()


def _first(positives: Positives, rows: int) -> Positives:
    """Return the positives of the first rows."""
    names = ("columns", "valid", "excluded")
    by_row = {name: getattr(positives, name) for name in names}
    first: Any = {name: part[:rows] for name, part in by_row.items() if isinstance(part, Tensor)}
    vectors = None if positives.vectors is None else _precise(positives.vectors)
    return replace(positives, **first, mirrored=None, vectors=vectors)


def _negatives(
    cosine: Tensor, is_negative: Tensor, count: Tensor | int, spec: ContrastSpec
) -> tuple[Tensor, Tensor]:
    """Return the negatives' log-sum by row, and each one's share in the gradient of all of them.

    Hard negatives are weighted by terms that depend on the logits themselves, so that a share may
    be negative there.
    """

    def logits(sharpness: float) -> Tensor:
        return (cosine * (sharpness / spec.temperature)).masked_fill(~is_negative, -torch.inf)

    def softmax(of: Tensor) -> Tensor:
        return of.softmax(dim=1).nan_to_num(0.0)  # a row without negatives

    sharp = logits(1.0 + spec.beta)
    if spec.beta == 0.0:
        return sharp.logsumexp(dim=1), softmax(sharp)
    flat = logits(spec.beta)
    log_sum = weighted_log_sum(sharp.logsumexp(dim=1), flat.logsumexp(dim=1), count)
    return log_sum, (1.0 + spec.beta) * softmax(sharp) - spec.beta * softmax(flat)
