"""Loss and derivatives of a row from two log-sums.

They are the log-sum of its positives' logits, with margins, and that of its negatives'.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from solo_margins.losses.margins import ContrastSpec


class RowTerms(NamedTuple):
    """Loss of each row and the shares of its gradient, attenuation included.

    The derivative by a positive's logit is ``-to_positives`` times its share among the positives;
    that by the log-sum of negatives is ``to_negatives``.
    """

    loss: Tensor
    to_positives: Tensor
    to_negatives: Tensor


def info_nce(positive: Tensor, negative: Tensor, spec: ContrastSpec) -> RowTerms:
    r"""Return the terms of generalised InfoNCE, :math:`-z' + \beta \log \sum \exp z'` (Eq. 6, 9).

    With β = 1 nothing cancels, however close q is to 1.
    """
    margins, beta = spec.margins, spec.negatives_weight
    gap = positive - negative
    loss = -beta * F.logsigmoid(gap)
    complement = torch.sigmoid(-gap)  # 1 - q, never by subtraction
    attenuated = margins.attenuated(complement)
    to_positives = beta * attenuated
    if beta != 1.0:
        loss = loss + (beta - 1.0) * positive
        # 1 - βq = (1 - β) + β(1 - q)
        to_positives = to_positives + (1.0 - beta) * margins.attenuation_factor(complement)
    row_wide = margins.attenuation_type == "I"
    return RowTerms(loss, to_positives, beta * (attenuated if row_wide else complement))


def loss_terms(
    positive: Tensor,
    negative: Tensor,
    positives: Tensor | int,
    negatives: Tensor | int,
    spec: ContrastSpec,
) -> RowTerms:
    r"""Return the terms of InfoNCE, with negatives of which a share :math:`\tau^+` is false.

    .. math::
        N_g = \max\left(\frac{S - n \tau^+ \bar P}{1 - \tau^+}, n e^{-1/\tau}\right), \qquad
        L = -\log \frac{P}{P + N_g}

    with :math:`P` the sum and :math:`\bar P` the mean over positives, :math:`S` the (weighted) sum
    over the row's :math:`n` negatives. All is computed relative to the larger of the two log-sums.
    """
    if spec.tau_plus == 0.0:
        return info_nce(positive, negative, spec)
    share = spec.tau_plus / (1.0 - spec.tau_plus)
    lowest = -1.0 / spec.temperature  # logit of a negative
    peak = torch.maximum(positive, negative).clamp_min(lowest)
    false = negatives * share / positives * (positive - peak).exp()
    every = (negative - peak).exp() / (1.0 - spec.tau_plus)
    floor = negatives * (lowest - peak).exp()
    is_corrected = every - false > floor
    corrected = torch.where(is_corrected, every - false, floor)
    terms = info_nce(positive, corrected.log() + peak, spec)
    by_positive, by_negative = (
        torch.where(is_corrected, part / corrected, 0.0) for part in (false, every)
    )
    # The chain rule: log Ng falls by the false negatives and rises by all of them.
    return RowTerms(
        terms.loss, terms.to_positives * (1.0 + by_positive), terms.to_negatives * by_negative
    )


def weighted_log_sum(sharp: Tensor, flat: Tensor, negatives: Tensor | int) -> Tensor:
    r"""Return :math:`\log \sum e^{z} e^{bz} / \mathrm{mean}(e^{bz})` from its two log-sums."""
    count = torch.as_tensor(negatives, dtype=sharp.dtype, device=sharp.device)
    return torch.where(count > 0, sharp - flat + count.log(), -math.inf)
