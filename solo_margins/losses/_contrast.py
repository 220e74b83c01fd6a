"""The matrix work shared by all contrastive losses, with value and gradient made in one go.

A margin touches only positives, N values; negatives stay a plain softmax over N×M entries. So the
forward pass computes, tile by tile, the log-sum of negatives and at once its gradient, and what is
kept for backward is the gradient of the vectors, never a matrix. Where rows and columns are the
same vectors the similarity matrix is symmetric and half of it suffices.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from solo_margins.losses._directions import Angles, angles_between, difference
from solo_margins.losses._first_order import differentiable_once
from solo_margins.losses._objectives import Objective, RowTerms, weighted_log_sum
from solo_margins.losses._observation import report_contrast
from solo_margins.losses._positives import Positives
from solo_margins.losses._pull import pull_along
from solo_margins.losses._tiles import row_tiles
from solo_margins.losses.margins import Margins

# Up to this size the exponentials of the upper triangle are kept between the two passes over it.
KEPT_BYTES = 256 << 20


@dataclass(frozen=True)
class Contrast:
    """Everything about a contrastive loss except its vectors."""

    temperature: float
    margins: Margins
    objective: Objective
    positives: Positives
    weight: float  # of one row in the total
    tile_size: int | None = None


def contrast(rows: Tensor, columns: Tensor | None, setting: Contrast) -> Tensor:
    """Return the weighted sum of the rows' losses, as a scalar that can be differentiated once.

    Args:
        rows: (N, D) unit vectors.
        columns: (M, D) unit vectors, or None if they are the rows.
        setting: temperature, margins, objective and positives.
    """
    report_contrast(rows, columns, setting)
    if columns is None and not _symmetric_is_exact(rows, setting):
        columns = rows
    loss: Tensor = _Contrast.apply(rows, columns, setting)
    return loss


class _Contrast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, columns: Tensor | None, setting: Contrast) -> Tensor:
        needs_rows, needs_columns = ctx.needs_input_grad[:2]
        if columns is None:
            loss, for_rows = _symmetric(rows, setting, needs_rows)
            for_columns = None
        else:
            loss, for_rows, for_columns = _rectangular(
                rows, columns, setting, needs_rows, needs_columns
            )
        ctx.save_for_backward(for_rows, for_columns)
        return loss

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        for_rows, for_columns = ctx.saved_tensors
        return (
            None if for_rows is None else for_rows * gradient,
            None if for_columns is None else for_columns * gradient,
            None,
        )


# --------------------------------------------------------------------------------- positives


@dataclass(frozen=True)
class _PositiveSide:
    """Angles and logits of all positives, (N, P), and their log-sum by row, (N,)."""

    angles: Angles
    logits: Tensor
    log_sum: Tensor


def _partners(columns: Tensor, positives: Positives) -> Iterator[Tensor]:
    """Yield, one positive after the other, the (N, D) vectors that the rows are paired with."""
    vectors = columns if positives.vectors is None else positives.vectors
    for place in range(positives.columns.shape[1]):
        yield vectors.index_select(0, positives.columns[:, place])


def positive_side(rows: Tensor, columns: Tensor, setting: Contrast) -> _PositiveSide:
    found = [angles_between(rows, partner) for partner in _partners(columns, setting.positives)]
    if not found:  # no row has a positive
        nothing = rows.new_empty((rows.shape[0], 0))
        log_sum = rows.new_full((rows.shape[0],), -torch.inf)
        return _PositiveSide(Angles(*4 * [nothing]), nothing, log_sum)
    if len(found) == 1:
        angles = Angles(*(part.unsqueeze(1) for part in found[0]))
    else:
        angles = Angles(*(torch.stack(part, dim=1) for part in zip(*found, strict=True)))
    logits = setting.margins.similarity(angles.cosine, angles.sine) / setting.temperature
    logits = logits.clamp_min(-torch.finfo(logits.dtype).max / 4)
    if setting.positives.valid is not None:
        logits = logits.masked_fill(~setting.positives.valid, -torch.inf)
    log_sum = logits.squeeze(1) if logits.shape[1] == 1 else logits.logsumexp(dim=1)
    return _PositiveSide(angles, logits, log_sum)


def positive_mass(side: _PositiveSide, terms: RowTerms, setting: Contrast) -> Tensor:
    """Return minus the derivative of the loss by the similarity of each positive, (N, P)."""
    mass = terms.to_positives.unsqueeze(1) * (setting.weight / setting.temperature)
    if side.logits.shape[1] > 1:  # a positive's share among those of its row
        mass = mass * (side.logits - side.log_sum.unsqueeze(1)).exp()
    return mass


def _pull(side: _PositiveSide, terms: RowTerms, setting: Contrast) -> Tensor:
    """Return, for each positive, the factor of its difference vector in the gradient."""
    pull = pull_along(side.angles, setting.margins, positive_mass(side, terms, setting))
    if setting.positives.valid is not None:
        pull = pull.masked_fill(~setting.positives.valid, 0.0)
    return pull


# --------------------------------------------------------------------------------- negatives


def _needs_no_shift(vectors: Tensor, setting: Contrast) -> bool:
    """Whether exp(logit) can neither overflow nor vanish, so that no maximum need be subtracted."""
    largest = (1.0 + setting.objective.hardness) / setting.temperature
    return largest <= (40.0 if vectors.dtype == torch.float32 else 300.0)


def _symmetric_is_exact(rows: Tensor, setting: Contrast) -> bool:
    return _needs_no_shift(rows, setting) and setting.objective.hardness == 0.0


def row_terms(
    side: _PositiveSide, log_negatives: Tensor, setting: Contrast, part: slice
) -> RowTerms:
    """Return the terms of some rows; rows without a positive count for nothing."""
    positives = setting.positives
    terms = setting.objective(
        side.log_sum[part],
        log_negatives,
        positives.count(part, log_negatives.dtype),
        positives.count_negatives(part, log_negatives.dtype),
    )
    if positives.valid is None and positives.columns.shape[1] > 0:
        return terms
    alone = torch.isneginf(side.log_sum[part])
    return RowTerms(*(term.masked_fill(alone, 0.0) for term in terms))


def _per_negative(mass: Tensor, total: Tensor, setting: Contrast) -> Tensor:
    """Return what turns exponentials into gradients of the cosines: weight·mass/(total·τ)."""
    scaled = mass / total * (setting.weight / setting.temperature)
    if not isinstance(setting.positives.negatives, int) or setting.positives.negatives == 0:
        scaled = scaled.masked_fill_(total == 0, 0.0)  # a row without negatives
    limit = torch.finfo(scaled.dtype).max ** 0.75
    return scaled.clamp_(-limit, limit)


def _symmetric(
    vectors: Tensor, setting: Contrast, needs_gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """Return loss and gradient of rows against themselves from the upper triangle alone.

    The first pass adds exponentials up by row and by column. With the sums known, the gradient by
    entry (i, j) is e_ij (a_i + a_j), again symmetric: one product instead of two.
    """
    size = vectors.shape[0]
    strips = row_tiles(size, size, setting.tile_size, vectors.device)
    tile = strips[0].stop
    sharpness = 1.0 / setting.temperature
    triangle = sum((strip.stop - strip.start) * (size - strip.start) for strip in strips)
    keep = needs_gradient and (
        len(strips) == 1
        or (setting.tile_size is None and triangle * vectors.element_size() <= KEPT_BYTES)
    )
    buffer = vectors.new_empty(triangle if keep else tile * size)
    own = torch.arange(size, device=vectors.device).unsqueeze(1)
    excluded = setting.positives.excluded

    def exponentials(strip: slice, at: int) -> Tensor:
        shape = (strip.stop - strip.start, size - strip.start)
        out = buffer[at : at + shape[0] * shape[1]].view(shape)
        right = vectors[strip.start :].t()
        torch.addmm(out, vectors[strip], right, beta=0, alpha=sharpness, out=out).exp_()
        left_out = excluded[strip]
        if strip.start > 0:
            # What lies left of the triangle is not in this strip; excluding self twice is harmless.
            left_out = torch.where(left_out < strip.start, own[strip], left_out) - strip.start
        return out.scatter_(1, left_out, 0.0)

    total = vectors.new_zeros(size)
    kept: list[Tensor] = []
    at = 0
    for strip in strips:
        tile_exp = exponentials(strip, at)
        total[strip] += tile_exp.sum(dim=1)
        if strip.stop < size:
            total[strip.stop :] += tile_exp[:, strip.stop - strip.start :].sum(dim=0)
        if keep:
            kept.append(tile_exp)
            at += tile_exp.numel()

    side = positive_side(vectors, vectors, setting)
    terms = row_terms(side, total.log(), setting, slice(0, size))
    loss = terms.loss.sum() * setting.weight
    if not needs_gradient:
        return loss, None

    per_negative = _per_negative(terms.to_negatives, total, setting)
    gradient = torch.zeros_like(vectors)
    factors = vectors.new_empty(tile * size)
    for number, strip in enumerate(strips):
        tile_exp = kept[number] if keep else exponentials(strip, 0)
        both = factors[: tile_exp.numel()].view(tile_exp.shape)
        torch.add(per_negative[strip].unsqueeze(1), per_negative[strip.start :], out=both)
        tile_exp.mul_(both)
        gradient[strip].addmm_(tile_exp, vectors[strip.start :])
        if strip.stop < size:
            right = tile_exp[:, strip.stop - strip.start :]
            gradient[strip.stop :].addmm_(right.t(), vectors[strip])

    pull = _pull(side, terms, setting)
    mirrored = setting.positives.mirrored
    assert mirrored is not None
    pull = pull + pull.reshape(-1)[mirrored]
    for place, partner in enumerate(_partners(vectors, setting.positives)):
        toward = difference(vectors, partner, side.angles.side[:, place])
        gradient.addcmul_(toward, pull[:, place].unsqueeze(1), value=-1.0)
    return loss, gradient


def _rectangular(
    rows: Tensor, columns: Tensor, setting: Contrast, needs_rows: bool, needs_columns: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return loss and gradients of rows against columns, one tile of rows after the other."""
    size, width = rows.shape[0], columns.shape[0]
    tiles = row_tiles(size, width, setting.tile_size, rows.device)
    hardness = setting.objective.hardness
    shift = not _needs_no_shift(rows, setting)
    side = positive_side(rows, columns, setting)
    for_rows = torch.empty_like(rows) if needs_rows else None
    for_columns = torch.zeros_like(columns) if needs_columns else None
    buffer = rows.new_empty(tiles[0].stop * width)
    collected: list[RowTerms] = []

    for part in tiles:
        excluded = setting.positives.excluded[part]
        height = part.stop - part.start
        logits = buffer[: height * width].view(height, width)
        torch.mm(rows[part] / setting.temperature, columns.t(), out=logits)
        peak: Tensor | float = 0.0
        if shift or hardness > 0.0:
            logits.scatter_(1, excluded, -torch.inf)
        if shift:
            peak = logits.amax(dim=1, keepdim=True).clamp_min(-torch.finfo(logits.dtype).max)
            logits.sub_(peak)
            peak = peak.squeeze(1)
        flat = None
        if hardness > 0.0:
            # Once more, because a hardness that is 0 in this dtype makes a NaN of -inf.
            flat = (logits * hardness).scatter_(1, excluded, -torch.inf).exp_()
        sharp = (logits.mul_(1.0 + hardness) if hardness > 0.0 else logits).exp_()
        if not (shift or hardness > 0.0):
            sharp.scatter_(1, excluded, 0.0)

        total = sharp.sum(dim=1)
        log_negatives = total.log() + peak
        flat_total = None
        if flat is not None:
            flat_total = flat.sum(dim=1)
            log_negatives = weighted_log_sum(
                total.log() + (1.0 + hardness) * peak,
                flat_total.log() + hardness * peak,
                setting.positives.count_negatives(part, rows.dtype),
            )
        terms = row_terms(side, log_negatives, setting, part)
        collected.append(terms)
        if for_rows is None and for_columns is None:
            continue

        scale = _per_negative(terms.to_negatives, total, setting).unsqueeze(1)
        if flat is not None and flat_total is not None:
            flat_scale = _per_negative(terms.to_negatives, flat_total, setting).unsqueeze(1)
            sharp.mul_(scale * (1.0 + hardness)).sub_(flat.mul_(flat_scale * hardness))
            scale = torch.ones_like(scale)
        if for_rows is not None:
            torch.mm(sharp, columns, out=for_rows[part]).mul_(scale)
        if for_columns is not None:
            for_columns.addmm_(sharp.t(), rows[part] * scale)

    terms = RowTerms(*(torch.cat(term) for term in zip(*collected, strict=True)))
    loss = terms.loss.sum() * setting.weight
    if for_rows is not None or for_columns is not None:
        pull = _pull(side, terms, setting)
        for place, partner in enumerate(_partners(columns, setting.positives)):
            facing = side.angles.side[:, place]
            toward = difference(rows, partner, facing) * pull[:, place].unsqueeze(1)
            if for_rows is not None:
                for_rows.sub_(toward)
            if for_columns is not None and setting.positives.vectors is None:
                toward.mul_(facing.unsqueeze(1))
                for_columns.index_add_(0, setting.positives.columns[:, place], toward)
    return loss, for_rows, for_columns
