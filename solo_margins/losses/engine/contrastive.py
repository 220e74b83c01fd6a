"""The matrix work of all contrastive losses, with value and gradient in one pass.

A margin touches only positives, N values; negatives stay a plain softmax over N×M entries. So the
forward pass computes, tile by tile, the log-sum of negatives and at once its gradient, and what is
kept for backward is the gradient of the vectors, never a matrix. Where rows and columns are the
same vectors the similarity matrix is symmetric and half of it suffices.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from solo_margins.losses import plain
from solo_margins.losses.capture import report_contrast
from solo_margins.losses.engine import geometry
from solo_margins.losses.engine.positives import Counts, Positives, SameId
from solo_margins.losses.engine.row_terms import RowTerms, loss_terms
from solo_margins.losses.margins import ContrastSpec, Margins

# Up to this size the exponentials of the upper triangle are kept between the two passes over it.
KEPT_BYTES = 256 << 20

LossAndGradients = tuple[Tensor, list[Tensor | None]]


def contrastive_loss(
    rows: Tensor,
    columns: Tensor | None,
    positives: Positives | SameId,
    spec: ContrastSpec,
    ranks: int = 1,
    tile_size: int | None = None,
) -> Tensor:
    """Return the mean loss of the rows that have a positive.

    Args:
        rows: (N, D) unit vectors.
        columns: (M, D) unit vectors, or None if they are the rows.
        positives: which columns are positives of which row.
        spec: the settings.
        ranks: over how many ranks data parallel training takes the mean of losses. Rows are
            weighted by the number of all ranks' rows, so that they count alike in it.
        tile_size: rows of the similarity matrix held at a time; None chooses.
    """
    compared = rows if columns is None else columns
    report_contrast(rows, compared, positives, spec)
    weight = positives.weight if ranks == 1 else positives.weight * ranks
    matrix = _Matrix(positives, spec, weight, tile_size)
    if columns is not None:
        return geometry.EngineLoss.apply(matrix.rectangular, matrix.by_autograd, rows, columns)
    is_known = isinstance(positives, Positives)
    if is_known and _needs_no_shift(rows, spec) and not spec.weights_negatives:
        return geometry.EngineLoss.apply(matrix.symmetric, matrix.by_autograd, rows)
    return geometry.EngineLoss.apply(matrix.square, matrix.by_autograd, rows)


# --------------------------------------------------------------------------------- positives


class PositiveSide(NamedTuple):
    """Cosines, sines if the margins need them, and logits of positives, and their log-sum by row.

    All are (N, P) but for the log-sum, which is (N,).
    """

    cosine: Tensor
    sine: Tensor | None
    logits: Tensor
    log_sum: Tensor


def positive_side(
    cosine: Tensor,
    sine: Tensor | None,
    is_other: Tensor | None,
    spec: ContrastSpec,
    margins: Margins,
) -> PositiveSide:
    """Return the logits of positives with the margins of their rows.

    Where ``is_other`` is true there is no positive. The log-sum of a row without any is finite.
    """
    highest = torch.finfo(cosine.dtype).max / 4
    logits = margins.similarity(cosine, sine) / spec.temperature
    # Differences of logits stay finite.
    logits = logits.clamp_min(-highest) if _may_overflow(spec, highest) else logits
    if is_other is not None:
        logits = logits.masked_fill(is_other, -torch.inf)
    log_sum = logits.squeeze(1) if logits.shape[1] == 1 else logits.logsumexp(dim=1)
    if is_other is not None:
        log_sum = log_sum.clamp_min(-highest)
    return PositiveSide(cosine, sine, logits, log_sum)


def _may_overflow(spec: ContrastSpec, highest: float) -> bool:
    """Return whether a logit may be beyond a number; on a device nobody waits for a tensor's."""
    if isinstance(spec.temperature, Tensor) or isinstance(spec.margins.subtractive, Tensor):
        return True
    return (3.0 + spec.margins.subtractive) / spec.temperature > highest


# --------------------------------------------------------------------------------- negatives


def _needs_no_shift(vectors: Tensor, spec: ContrastSpec) -> bool:
    """Return whether exp(logit) can neither overflow nor vanish without a subtracted maximum."""
    if isinstance(spec.temperature, Tensor):  # of which the host does not know the value
        return False
    largest = (1.0 + spec.beta) / spec.temperature
    return largest <= (40.0 if vectors.dtype == torch.float32 else 300.0)


class NegativeSide(NamedTuple):
    """Exponentials of a tile's negatives, their sums by row, and the log-sum of negatives.

    With hard negatives the exponentials are those of (1 + β) z, and ``flat`` those of β z.
    """

    exponentials: Tensor
    total: Tensor
    log_sum: Tensor
    flat: Tensor | None = None
    flat_total: Tensor | None = None


@dataclass(frozen=True)
class _Matrix:
    """The weighted sum of the rows' losses and its gradients, computed in several ways.

    Gradients by logits are multiplied by ``_factor``; then ``_by_cosine`` makes them those by
    cosines.
    """

    positives: Any  # of a kind that the way of computing takes
    spec: ContrastSpec
    weight: float | Tensor  # of each row in the mean
    tile_size: int | None

    def by_autograd(self, rows: Tensor, columns: Tensor | None = None) -> Tensor:
        """Return the loss in its plain form."""
        compared = rows if columns is None else columns
        compared, is_positive, is_negative = self.positives.as_masks(compared)
        cosine = plain.cosines(rows, compared)
        losses = plain.row_losses(cosine, is_positive, is_negative, self.spec)
        return (losses * self.weight).sum()

    def _factor(self, vectors: Tensor) -> float:
        """Return the weight of rows over τ, as far as they are numbers that the host knows."""
        weight, temperature = self.weight, self.spec.temperature
        factor = 1.0 if isinstance(weight, Tensor) else weight
        if not isinstance(temperature, Tensor):
            factor /= temperature
        return min(factor, torch.finfo(vectors.dtype).max)

    def _by_cosine(self, gradient: Tensor | None) -> Tensor | None:
        """Divide a gradient by a temperature that the host does not know."""
        temperature = self.spec.temperature
        if gradient is None or not isinstance(temperature, Tensor):
            return gradient
        return gradient.div_(temperature)

    def _of_positives(self, vectors: Tensor) -> float:
        """Return s of all rows times their weight over τ."""
        scale = min(self.spec.margins.common_scale, geometry.largest_factor(vectors))
        return min(scale * self._factor(vectors), torch.finfo(vectors.dtype).max)

    def _total(self, terms: RowTerms) -> Tensor:
        """Return the sum of weighted losses."""
        total = terms.loss.sum()
        return total if isinstance(self.weight, Tensor) else total * self.weight

    def _positive_grad(
        self, side: PositiveSide, terms: RowTerms, margins: Margins, is_positive: Tensor | None
    ) -> Tensor:
        """Return, for each positive, the factor of its direction in minus the gradient over s."""
        by_logit = terms.to_positives.unsqueeze(1)
        if side.logits.shape[1] > 1:  # a positive's share among those of its row
            by_logit = by_logit * (side.logits - side.log_sum.unsqueeze(1)).exp()
        q = None if margins.scaling is None else torch.sigmoid(-terms.gap).unsqueeze(1)
        return geometry.positive_grad(side.cosine, side.sine, margins, by_logit, q, is_positive)

    def _per_negative(self, to_negatives: Tensor, total: Tensor, columns: int) -> Tensor:
        """Return the factor from exponentials to gradients."""
        if not self.positives.each_row_has_negatives(columns):
            # Where there are none the exponentials are 0, and so are their gradients.
            total = total.clamp_min(torch.finfo(total.dtype).tiny ** 0.75)
        return to_negatives / total

    def _counts(self, part: slice, vectors: Tensor) -> Counts | None:
        """Return the numbers of positives and negatives of some rows, if the loss needs them."""
        if self.spec.tau_plus == 0.0 and not self.spec.weights_negatives:
            return None
        return self.positives.counts(vectors.shape[0], part, vectors.dtype)

    def _row_terms(
        self, log_positives: Tensor, log_negatives: Tensor, counts: Counts | None, part: slice
    ) -> RowTerms:
        """Return the terms of some rows from their log-sums, weighted where weights differ."""
        terms = loss_terms(log_positives, log_negatives, counts, self.spec)
        if not isinstance(self.weight, Tensor):
            return terms
        weight = self.weight[part]
        to_positives = to_negatives = terms.to_positives * weight
        if terms.to_negatives is not terms.to_positives:
            to_negatives = terms.to_negatives * weight
        return RowTerms(terms.loss * weight, to_positives, to_negatives, terms.gap)

    def _write_logits(self, rows: Tensor, columns: Tensor, out: Tensor) -> None:
        """Write cosines over τ into ``out``."""
        temperature = self.spec.temperature
        if isinstance(temperature, Tensor) or 1.0 / temperature > torch.finfo(rows.dtype).max:
            torch.mm(rows / temperature, columns.t(), out=out)
        else:
            _product(rows, columns.t(), 1.0 / temperature, out=out)

    def _exponentials(self, vectors: Tensor, strip: slice, buffer: Tensor) -> Tensor:
        """Return the exponentials of a strip of the upper triangle, 0 where it has no negatives."""
        height, width = strip.stop - strip.start, vectors.shape[0] - strip.start
        out = buffer[: height * width].view(height, width)
        self._write_logits(vectors[strip], vectors[strip.start :], out)
        out.exp_()
        excluded = self.positives.excluded[strip]
        if strip.start > 0:
            # Left of the triangle is not in this strip; excluding self twice is harmless.
            own = torch.arange(strip.start, strip.stop, device=vectors.device).unsqueeze(1)
            excluded = torch.where(excluded < strip.start, own, excluded) - strip.start
        return out.scatter_(1, excluded, 0.0)

    def symmetric(self, vectors: Tensor, needed: Sequence[bool]) -> LossAndGradients:
        """Return loss and gradient of rows against themselves from the upper triangle alone.

        The first pass adds exponentials up by row and by column. With the sums known, the gradient
        by entry (i, j) is e_ij (a_i + a_j), again symmetric: one product instead of two.
        """
        size, spec = vectors.shape[0], self.spec
        strips = geometry.row_tiles(size, size, self.tile_size, vectors.device)
        tile = strips[0].stop
        triangle = sum((strip.stop - strip.start) * (size - strip.start) for strip in strips)
        fits = self.tile_size is None and triangle * vectors.element_size() <= KEPT_BYTES
        keep = needed[0] and (len(strips) == 1 or fits)
        buffer = vectors.new_empty(triangle if keep else tile * size)

        total = vectors.new_zeros(size)
        kept: list[Tensor] = []
        at = 0  # where the next strip begins in the buffer, if it is kept
        for strip in strips:
            tile_exp = self._exponentials(vectors, strip, buffer[at:])
            total[strip].add_(tile_exp.sum(dim=1))
            if strip.stop < size:
                total[strip.stop :].add_(tile_exp[:, strip.stop - strip.start :].sum(dim=0))
            if keep:
                kept.append(tile_exp)
                at += tile_exp.numel()

        partners = self.positives.partners(vectors)
        angles = geometry.angles_between(vectors.unsqueeze(1), partners, spec.margins)
        side = positive_side(angles.cosine, angles.sine, None, spec, spec.margins)
        rows = slice(0, size)
        counts = self._counts(rows, vectors)
        terms = self._row_terms(side.log_sum, total.log(), counts, rows)
        loss = self._total(terms)
        if not needed[0]:
            return loss, [None]

        per_negative = self._per_negative(terms.to_negatives, total, size)
        gradient = torch.zeros_like(vectors)
        factor = self._factor(vectors)
        sums = vectors.new_empty(tile * size)
        for number, strip in enumerate(strips):
            tile_exp = kept[number] if keep else self._exponentials(vectors, strip, buffer)
            both = sums[: tile_exp.numel()].view(tile_exp.shape)
            torch.add(per_negative[strip].unsqueeze(1), per_negative[strip.start :], out=both)
            tile_exp.mul_(both)
            gradient[strip].addmm_(tile_exp, vectors[strip.start :], alpha=factor)
            if strip.stop < size:
                right = tile_exp[:, strip.stop - strip.start :]
                gradient[strip.stop :].addmm_(right.t(), vectors[strip], alpha=factor)

        by_positives = self._positive_grad(side, terms, spec.margins, None)
        by_positives = by_positives + by_positives.reshape(-1)[self.positives.mirrored]
        for number in range(by_positives.shape[1]):
            one = by_positives[:, number].unsqueeze(1)
            direction = angles.direction[:, number]
            gradient.addcmul_(direction, one, value=-self._of_positives(vectors))
        return loss, [self._by_cosine(gradient)]

    def square(self, vectors: Tensor, needed: Sequence[bool]) -> LossAndGradients:
        """Return loss and gradient of rows against themselves from the whole matrix."""
        loss, gradients = self.rectangular(vectors, vectors, [needed[0], needed[0]])
        by_rows, by_columns = gradients
        if by_rows is None or by_columns is None:
            return loss, [None]
        return loss, [by_rows.add_(by_columns)]

    def rectangular(
        self, rows: Tensor, columns: Tensor, needed: Sequence[bool]
    ) -> LossAndGradients:
        """Return loss and gradients of rows against columns, one tile of rows after the other."""
        if isinstance(self.positives, SameId):
            return self.by_ids(rows, columns, needed)
        positives, spec, width = self.positives, self.spec, columns.shape[0]
        tiles = geometry.row_tiles(rows.shape[0], width, self.tile_size, rows.device)
        partners = positives.partners(columns)
        angles = geometry.angles_between(rows.unsqueeze(1), partners, spec.margins)
        side = positive_side(angles.cosine, angles.sine, None, spec, spec.margins)
        for_rows = torch.empty_like(rows) if needed[0] else None
        for_columns = torch.zeros_like(columns) if needed[1] else None
        buffer = rows.new_empty(tiles[0].stop * width)
        factor = self._factor(rows)
        collected: list[RowTerms] = []

        for part in tiles:
            height = part.stop - part.start
            logits = buffer[: height * width].view(height, width)
            self._write_logits(rows[part], columns, logits)
            positives.exclude_(logits, part, -torch.inf)
            counts = self._counts(part, columns)
            negatives = self._negatives(logits, counts)
            terms = self._row_terms(side.log_sum[part], negatives.log_sum, counts, part)
            collected.append(terms)
            if not any(needed):
                continue
            by_logit, scale = self._by_negatives(negatives, terms, width)
            if for_rows is not None:
                _product(by_logit, columns, factor, out=for_rows[part]).mul_(scale)
            if for_columns is not None:
                for_columns.addmm_(by_logit.t(), rows[part] * scale, alpha=factor)

        terms = _of_all_rows(collected)
        loss = self._total(terms)
        if not any(needed):
            return loss, [None, None]
        by_positives = self._positive_grad(side, terms, spec.margins, positives.valid)
        for number in range(by_positives.shape[1]):
            one = by_positives[:, number].unsqueeze(1)
            if for_rows is not None:
                direction = angles.direction[:, number]
                for_rows.addcmul_(direction, one, value=-self._of_positives(rows))
            if for_columns is not None and positives.vectors is None:
                back = geometry.direction_back(rows, partners[:, number], angles, number)
                positives.add_to_(for_columns, number, back, one, -self._of_positives(rows))
        return loss, [self._by_cosine(for_rows), self._by_cosine(for_columns)]

    def by_ids(self, rows: Tensor, columns: Tensor, needed: Sequence[bool]) -> LossAndGradients:
        """Return loss and gradients where only the device knows which columns are positives.

        Positives are treated as entries of the matrix, like negatives.
        """
        positives, spec, width = self.positives, self.spec, columns.shape[0]
        # Several matrices of this size are alive at a time.
        tiles = geometry.row_tiles(rows.shape[0], 4 * width, self.tile_size, rows.device)
        for_rows = torch.empty_like(rows) if needed[0] else None
        for_columns = torch.zeros_like(columns) if needed[1] else None
        factor = self._factor(rows)
        collected: list[RowTerms] = []
        for part in tiles:
            cosine = rows[part] @ columns.t()
            sine = None
            if spec.margins.follow_angles:
                # What rounding can make of an angle of 0 or π becomes exactly that.
                smallest = 8 * torch.finfo(cosine.dtype).eps
                sine = F.threshold(1.0 - cosine.square(), smallest, 0.0).sqrt_()
            is_same, is_positive = positives.same_and_positive(part)
            margins = spec.margins.of_rows(part)
            side = positive_side(cosine, sine, ~is_positive, spec, margins)
            counts = self._counts(part, columns)
            logits = (cosine / spec.temperature).masked_fill_(is_same, -torch.inf)
            negatives = self._negatives(logits, counts)
            terms = self._row_terms(side.log_sum, negatives.log_sum, counts, part)
            collected.append(terms)
            if not any(needed):
                continue
            by_positive = self._positive_grad(side, terms, margins, is_positive)
            by_logit, scale = self._by_negatives(negatives, terms, width)
            common = min(margins.common_scale, geometry.largest_factor(rows))
            by_logit = by_logit.mul_(scale).sub_(by_positive, alpha=common)
            if for_rows is not None:
                _product(by_logit, columns, factor, out=for_rows[part])
            if for_columns is not None:
                for_columns.addmm_(by_logit.t(), rows[part], alpha=factor)
        loss = self._total(_of_all_rows(collected))
        return loss, [self._by_cosine(for_rows), self._by_cosine(for_columns)]

    def _by_negatives(
        self, negatives: NegativeSide, terms: RowTerms, columns: int
    ) -> tuple[Tensor, Tensor]:
        """Return the gradient of a tile by the logits of negatives, up to a factor of each row."""
        hardness = self.spec.beta
        by_logit = negatives.exponentials
        scale = self._per_negative(terms.to_negatives, negatives.total, columns).unsqueeze(1)
        if negatives.flat is None or negatives.flat_total is None:
            return by_logit, scale
        flat_scale = self._per_negative(terms.to_negatives, negatives.flat_total, columns)
        flat = negatives.flat.mul_(flat_scale.unsqueeze(1) * hardness)
        by_logit.mul_(scale * (1.0 + hardness)).sub_(flat)
        return by_logit, torch.ones_like(scale)

    def _negatives(self, logits: Tensor, counts: Counts | None) -> NegativeSide:
        """Return the exponentials of a tile of logits, in its memory, and their log-sum by row.

        Args:
            logits: cosines over τ, minus infinity where there is no negative.
            counts: of positives and negatives, which weights of negatives need.
        """
        hardness = self.spec.beta
        if self.spec.mean is not None:
            assert counts is not None
            self._add_gaussian_(logits, counts)
        peak: Tensor | None = None
        if not _needs_no_shift(logits, self.spec):
            largest = logits.amax(dim=1, keepdim=True).clamp_min(-torch.finfo(logits.dtype).max)
            logits.sub_(largest)
            peak = largest.squeeze(1)
        if hardness == 0.0:
            exponentials = logits.exp_()
            total = exponentials.sum(dim=1)
            return NegativeSide(exponentials, total, _shifted(total.log(), peak))
        assert counts is not None
        # Zero times infinity would be a NaN.
        flat = (logits * max(hardness, torch.finfo(logits.dtype).tiny)).exp_()
        flat_total = flat.sum(dim=1)
        exponentials = logits.mul_(1.0 + hardness).exp_()
        total = exponentials.sum(dim=1)
        # log Σ e^z e^(βz) / mean(e^(βz)) from its two log-sums
        number = torch.as_tensor(counts.negatives, dtype=total.dtype, device=total.device)
        weighted = _shifted(total.log() - flat_total.log() + number.log(), peak)
        log_sum = torch.where(number > 0, weighted, -torch.inf)
        return NegativeSide(exponentials, total, log_sum, flat, flat_total)

    def _add_gaussian_(self, logits: Tensor, counts: Counts) -> None:
        """Add the logarithm of weights of which the mean over a row's negatives is 1."""
        weights = self.spec.log_gaussian(logits * self.spec.temperature)
        number = torch.as_tensor(counts.negatives, dtype=logits.dtype, device=logits.device)
        log_mean = weights.logsumexp(dim=1) - number.clamp_min(1.0).log()
        # Of a row without negatives it is minus infinity, as are its logits.
        log_mean.clamp_min_(-torch.finfo(logits.dtype).max)
        # The mean first: beside narrow weights a logit would be rounded away.
        logits.add_(weights.sub_(log_mean.unsqueeze(1)))


def _product(first: Tensor, second: Tensor, factor: float, out: Tensor) -> Tensor:
    """Write a matrix product times a number into ``out``."""
    return torch.addmm(out, first, second, beta=0, alpha=factor, out=out)


def _shifted(log_sum: Tensor, peak: Tensor | None) -> Tensor:
    """Return a log-sum with the peak that was subtracted from its logits."""
    return log_sum if peak is None else log_sum + peak


def _of_all_rows(collected: Sequence[RowTerms]) -> RowTerms:
    """Return the terms of all tiles of rows."""
    if len(collected) == 1:
        return collected[0]
    return RowTerms(*(torch.cat(parts) for parts in zip(*collected, strict=True)))
