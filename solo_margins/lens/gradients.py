r"""Sizes of gradients by angle, with and without margins, for captured vectors.

They are those of the loss in its plain form, by autograd. By Eq. 10–21 of the margins paper the
gradient of a positive is :math:`w_{il} (1 - q') \sin(\theta + m_1)/\tau` and that of a negative
:math:`q_{ij} \sin\theta/\tau`, times what attenuation adds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from solo_margins.losses import Margins
from solo_margins.losses.capture import Captured, CapturedPairs
from solo_margins.losses.engine.positives import diagonal_positives
from solo_margins.losses.margins import ContrastSpec
from solo_margins.losses.plain import row_losses

# Entries of the matrix of cosines, which autograd holds several times: fewer rows of a long queue.
MOST_PAIRS = 2**21


def angle_gradients(captured: Captured, max_rows: int) -> dict[str, Tensor]:
    """Return angles and the size of a row's gradient by each of them, not averaged over rows.

    Only the first rows that a loss compared are measured, against all of their columns. With N rows
    that have a positive, P positives and K other pairs the result has

    - ``positive_angle`` (P,) and ``negative_angle`` (K,), also of pairs that a loss leaves out;
    - ``positive`` (P,), the gradients with margins, and ``negative`` (K,);
    - ``positive_plain`` and ``negative_plain``, those of the same vectors without margins;
    - ``loss`` (N,), and ``loss_positive`` (N,), −z' of the positives, which the loss lowers;
    - ``q`` (N,), the probability of the positives; empty where there are no negatives;
    - ``curve`` (P,), what the curve leaves of the gradient of each positive;
    - ``candidates`` (), the number of vectors among which a row's positive is to be found; 1 where
      there are no negatives.
    """
    if isinstance(captured, CapturedPairs):
        # There are no negatives; the angles of the other pairs are shown in their place.
        columns, spec = captured.targets, ContrastSpec(1.0, captured.margins, negatives_weight=0.0)
        positives = diagonal_positives(slice(0, len(columns)), len(columns), columns.device)
    else:
        columns, spec, positives = captured.columns, captured.spec, captured.positives
    rows = captured.rows[: max(1, min(max_rows, MOST_PAIRS // len(columns)))]
    by_row = {name: getattr(positives, name) for name in ("columns", "valid", "excluded")}
    first: Any = {name: part[: len(rows)] for name, part in by_row.items() if part is not None}
    columns, is_positive, is_negative = replace(positives, **first).as_masks(columns)
    has_positive = is_positive.any(dim=1)
    is_negative &= has_positive.unsqueeze(1)

    dtype = torch.float32 if rows.device.type == "mps" else torch.float64
    cosine = rows.to(dtype) @ columns.to(dtype).t()
    sine = (1.0 - cosine.square()).clamp_min(0.0).sqrt()
    by_angle = []
    for margins in (Margins(), spec.margins):
        with torch.enable_grad():
            leaf = cosine.detach().requires_grad_()
            loss = row_losses(leaf, is_positive, is_negative, replace(spec, margins=margins))
            (by_cosine,) = torch.autograd.grad(loss.sum(), leaf)
        by_angle.append((by_cosine * sine).abs())
    plain, changed = by_angle
    loss = loss.detach()[has_positive]
    angle = cosine.clamp(-1.0, 1.0).acos()
    logits = spec.margins.similarity(cosine, sine) / spec.temperature
    log_positives = logits.masked_fill(~is_positive, -torch.inf).logsumexp(dim=1)
    candidates = is_negative.sum(dim=1).max() * bool(spec.negatives_weight) + 1
    return {
        "positive_angle": angle[is_positive],
        "negative_angle": angle[is_negative],
        "positive": changed[is_positive],
        "negative": changed[is_negative],
        "positive_plain": plain[is_positive],
        "negative_plain": plain[is_negative],
        "loss": loss,
        "loss_positive": -log_positives[has_positive],
        "q": (-loss).exp().clamp(0.0, 1.0)[: None if candidates > 1 else 0],
        "curve": spec.margins.angle_weight(angle[is_positive]) / spec.margins.positive_scale,
        "candidates": candidates,
    }
