"""What a row of similarities is worth: loss and derivatives from two log-sums.

An objective sees a row only as the log-sum of its positives' logits, with margins, and the log-sum
of its negatives'. It returns the loss and how much of the gradient goes to either side, attenuation
included. The matrix work around it is the same for all objectives.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from solo_margins.losses.margins import Margins


class RowTerms(NamedTuple):
    """Loss of each row and the shares of its gradient.

    The derivative by a positive's logit is ``-to_positives`` times its share among the positives;
    that by the log-sum of negatives is ``to_negatives``.
    """

    loss: Tensor
    to_positives: Tensor
    to_negatives: Tensor


class Objective(Protocol):
    """How a loss values the two log-sums of a row."""

    @property
    def hardness(self) -> float:
        """Exponent of the weights on negatives; 0 weights them all alike."""

    def __call__(
        self, positive: Tensor, negative: Tensor, positives: Tensor | int, negatives: Tensor | int
    ) -> RowTerms:
        """Return the row terms from the two log-sums and the two counts, each (N,)."""


@dataclass(frozen=True)
class InfoNCE:
    r"""Generalised InfoNCE, :math:`-z' + \beta \log \sum \exp z'` (Eq. 6 and 9)."""

    margins: Margins
    negatives_weight: float = 1.0
    hardness: float = 0.0

    def __call__(
        self, positive: Tensor, negative: Tensor, positives: Tensor | int, negatives: Tensor | int
    ) -> RowTerms:
        """Return the row terms; with β = 1 nothing cancels, however close q is to 1."""
        gap = positive - negative
        beta = self.negatives_weight
        loss = -beta * F.logsigmoid(gap)
        if beta != 1.0:
            loss = loss + (beta - 1.0) * positive
        complement = torch.sigmoid(-gap)  # 1 - q, never by subtraction
        attenuated = self.margins.attenuated(complement)
        to_positives = beta * attenuated
        if beta != 1.0:
            # 1 - βq = (1 - β) + β(1 - q)
            factor = self.margins.attenuation_factor(complement)
            to_positives = to_positives + (1.0 - beta) * factor
        row_wide = self.margins.attenuation_type == "I"
        return RowTerms(loss, to_positives, beta * (attenuated if row_wide else complement))


@dataclass(frozen=True)
class CorrectedNegatives:
    r"""Debiased negatives: the share :math:`\tau^+` of false negatives is subtracted, then floored.

    .. math::
        N_g = \max\left(\frac{S - n \tau^+ \bar P}{1 - \tau^+}, n e^{-1/\tau}\right), \qquad
        L = -\log \frac{P}{P + N_g}

    with :math:`P` the sum and :math:`\bar P` the mean over positives, :math:`S` the (weighted) sum
    over the row's :math:`n` negatives.
    """

    margins: Margins
    temperature: float
    tau_plus: float
    hardness: float = 0.0

    def __call__(
        self, positive: Tensor, negative: Tensor, positives: Tensor | int, negatives: Tensor | int
    ) -> RowTerms:
        """Return the row terms, computed relative to the larger of the two log-sums."""
        peak = torch.maximum(positive, negative)
        pos, neg = (positive - peak).exp(), (negative - peak).exp()
        correction = negatives * self.tau_plus / (1.0 - self.tau_plus) / positives
        corrected = neg / (1.0 - self.tau_plus) - correction * pos
        floor = negatives * (-1.0 / self.temperature - peak).exp()
        clamped = corrected < floor
        corrected = torch.where(clamped, floor, corrected)
        total = pos + corrected
        complement = corrected / total
        factor = self.margins.attenuation_factor(complement)
        false_negatives = torch.where(clamped, 0.0, correction * pos / total)
        attenuated = self.margins.attenuated(complement)
        to_negatives = torch.where(clamped, 0.0, neg / total / (1.0 - self.tau_plus))
        if self.margins.attenuation_type == "I":
            to_negatives = to_negatives * factor
        return RowTerms(
            loss=total.log() + (peak - positive),
            to_positives=attenuated + false_negatives * factor,
            to_negatives=to_negatives,
        )


def weighted_log_sum(sharp: Tensor, flat: Tensor, negatives: Tensor | int) -> Tensor:
    r"""Return :math:`\log \sum e^{z} e^{bz} / \mathrm{mean}(e^{bz})` from its two log-sums."""
    count = torch.as_tensor(negatives, dtype=sharp.dtype, device=sharp.device)
    return torch.where(count > 0, sharp - flat + count.log(), -math.inf)
