"""Losses of rows and shares of their gradients, from log-sums of positives and negatives."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from solo_margins.losses.engine.positives import Counts
from solo_margins.losses.margins import ContrastSpec


class RowTerms(NamedTuple):
    r"""Loss of each row and the shares of its gradient, attenuation included.

    The derivative by a positive's logit is ``-to_positives`` times its share among the positives;
    that by the log-sum of negatives is ``to_negatives``. ``gap`` is $\log((1 - q)/q)$.
    """

    loss: Tensor
    to_positives: Tensor
    to_negatives: Tensor
    gap: Tensor


def info_nce(positive: Tensor, negative: Tensor, spec: ContrastSpec) -> RowTerms:
    r"""Return the terms of generalised InfoNCE, $-z' + \beta \log \sum \exp z'$ (Eq. 6, 9).

    With β = 1 nothing cancels, however close q is to 1.
    """
    margins, push = spec.margins, spec.negatives_weight  # push is β
    gap = negative - positive
    loss = F.softplus(gap, threshold=40.0)  # beyond which the two are the same in float64
    attenuated = margins.attenuated(gap)
    by_negatives = attenuated
    if margins.attenuation_type == "II" and margins.attenuation > 0.0:
        by_negatives = torch.sigmoid(gap)  # 1 - q, never by subtraction
    if push == 1.0:
        return RowTerms(loss, attenuated, by_negatives, gap)
    # 1 - βq = (1 - β) + β(1 - q)
    without_negatives = (1.0 - push) * margins.attenuation_factor(torch.sigmoid(gap))
    return RowTerms(
        loss=push * loss + (push - 1.0) * positive,
        to_positives=push * attenuated + without_negatives,
        to_negatives=push * by_negatives,
        gap=gap,
    )


def loss_terms(
    positive: Tensor, negative: Tensor, counts: Counts | None, spec: ContrastSpec
) -> RowTerms:
    r"""Return the terms of InfoNCE, with negatives of which a share $\tau^+$ is false.

    $$
    N_g = \max\left(\frac{S - n \tau^+ \bar P}{1 - \tau^+}, n e^{-1/\tau}\right), \qquad
    L = -\log \frac{P}{P + N_g}
    $$

    with $P$ the sum and $\bar P$ the mean over positives, $S$ the (weighted) sum
    over the row's $n$ negatives. All is computed relative to the larger of the two log-sums.
    """
    if spec.tau_plus == 0.0:
        return info_nce(positive, negative, spec)
    assert counts is not None
    positives, negatives = counts
    share = spec.tau_plus / (1.0 - spec.tau_plus)
    # The lowest logit of a negative, as far as this dtype can hold it.
    lowest: float | Tensor
    smallest = -torch.finfo(positive.dtype).max / 4
    if isinstance(spec.temperature, Tensor):
        lowest = (-1.0 / spec.temperature).to(positive.dtype).clamp_min(smallest)
    else:
        lowest = max(-1.0 / spec.temperature, smallest)
    peak = torch.maximum(positive, negative).clamp_min(lowest)
    false = negatives * share / positives * (positive - peak).exp()
    every = (negative - peak).exp() / (1.0 - spec.tau_plus)
    floor = negatives * (lowest - peak).exp()
    is_corrected = every - false > floor
    corrected = torch.where(is_corrected, every - false, floor)
    terms = info_nce(positive, corrected.log() + peak, spec)
    # The chain rule: log Ng falls by the false negatives and rises by all of them.
    by_positive = torch.where(is_corrected, false / corrected, 0.0)
    by_negative = torch.where(is_corrected, every / corrected, 0.0)
    return terms._replace(
        to_positives=terms.to_positives * (1.0 + by_positive),
        to_negatives=terms.to_negatives * by_negative,
    )
