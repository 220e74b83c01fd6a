"""The losses of embeddings, computed by the engine; where torch traces them, by the plain form.

Torch traces them inside ``torch.compile`` and in the transformations of ``torch.func``.

The functions are those of :mod:`solo_margins.losses.plain`; the engine's also take ``tile_size``.
Both compute in float32 or better, whatever autocast says: near cos = 1 half precision cannot tell
angles apart.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from solo_margins.losses import capture, plain
from solo_margins.losses.checks import is_compiling, is_transforming
from solo_margins.losses.engine import geometry, positives
from solo_margins.losses.engine.contrastive import contrastive_loss
from solo_margins.losses.gather import batch_sizes, gather, own_rows
from solo_margins.losses.margins import ContrastSpec, Margins

Loss = TypeVar("Loss", bound=Callable[..., Any])


def _autocast_is_on(device: str) -> bool:
    """Return whether autocast is on for a type of device, such as ``"cpu"``."""
    try:
        return torch.is_autocast_enabled(device)
    except TypeError:  # before torch 2.4
        return torch.is_autocast_cpu_enabled() if device == "cpu" else torch.is_autocast_enabled()


def _either(engine_form: Loss) -> Loss:
    """Return the function that runs the engine, or the plain form of the same name."""
    plain_form = getattr(plain, engine_form.__name__)

    @functools.wraps(engine_form)
    def loss(first: Tensor, *args: Any, **kwargs: Any) -> Any:
        if plain_form is not plain.polarization:
            # Compiled code sets it too, unlike a list that grows, which would be compiled anew.
            capture.last_step.called_margin_loss = True
        if is_compiling() or is_transforming():
            kwargs.pop("tile_size", None)
            return plain_form(first, *args, **kwargs)
        if not _autocast_is_on(first.device.type):
            return engine_form(first, *args, **kwargs)
        with torch.autocast(first.device.type, enabled=False):
            return engine_form(first, *args, **kwargs)

    return loss  # type: ignore[return-value]


@_either
def query_key(
    query: Tensor,
    key: Tensor,
    spec: ContrastSpec,
    with_gradient: bool = False,
    tile_size: int | None = None,
) -> Tensor:
    """Return the mean loss of queries against all keys; key i is the positive of query i."""
    rows, columns = geometry.unit_vectors(query, key)
    sizes = batch_sizes(rows, spec.gathers)
    pairs = positives.diagonal_positives(own_rows(sizes), sum(sizes), rows.device)
    columns = gather(columns, sizes, with_gradient)
    return contrastive_loss(rows, columns, pairs, spec, len(sizes), tile_size)


@_either
def same_id(z: Tensor, ids: Tensor, spec: ContrastSpec, tile_size: int | None = None) -> Tensor:
    """Return the mean loss of rows against all other rows; those with the same id are positives."""
    (rows,) = geometry.unit_vectors(z)
    sizes = batch_sizes(rows, spec.gathers)
    pairs = positives.same_id_positives(ids, gather(ids, sizes), own_rows(sizes))
    columns = None if len(sizes) == 1 else gather(rows, sizes, with_gradient=True)
    return contrastive_loss(rows, columns, pairs, spec, len(sizes), tile_size)


@_either
def queue(query: Tensor, key: Tensor, negatives: Tensor, spec: ContrastSpec) -> Tensor:
    """Return the mean loss of queries against their own key and the columns of a queue."""
    rows, keys, columns = geometry.unit_vectors(query, key.detach(), negatives.detach().t())
    sizes = batch_sizes(rows, spec.gathers)
    pairs = positives.paired_positives(keys, sum(sizes))
    return contrastive_loss(rows, columns, pairs, spec, len(sizes))


@_either
def prototypes(z: Tensor, centres: Tensor, assignments: Tensor, spec: ContrastSpec) -> Tensor:
    """Return the mean loss of rows against centres; the assigned one is the positive, -1 none."""
    rows, columns = geometry.unit_vectors(z, centres.detach())
    return contrastive_loss(rows, columns, positives.assigned_positives(assignments), spec)


@_either
def positives_only(p: Tensor, z: Tensor, margins: Margins) -> Tensor:
    """Return minus the mean similarity with margins of pairs (p_i, z_i), with gradient for p."""
    rows, targets = geometry.unit_vectors(p, z.detach())
    capture.report(capture.CapturedPairs, rows, targets, margins)

    def engine(
        rows: Tensor, targets: Tensor, needed: Sequence[bool]
    ) -> tuple[Tensor, list[Tensor | None]]:
        angles = geometry.angles_between(rows, targets)
        loss = -margins.similarity(angles.cosine, angles.sine).mean()
        if not needed[0]:
            return loss, [None, None]
        dloss_dsim = torch.full_like(angles.angle, -1.0 / len(rows))
        factor = geometry.positive_grad(angles, margins, dloss_dsim).unsqueeze(1)
        return loss, [geometry.chord(rows, targets, angles.side).mul_(factor), None]

    def by_autograd(rows: Tensor, targets: Tensor) -> Tensor:
        return plain.pair_losses(rows, targets, margins).mean()

    return geometry.EngineLoss.apply(engine, by_autograd, rows, targets)


@_either
def polarization(
    z: Tensor, lower: float, upper: float, tile_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return the mean penalty over ordered pairs of rows, and this rank's number in the band."""
    (rows,) = geometry.unit_vectors(z)
    sizes = batch_sizes(rows)
    own, count = own_rows(sizes), sum(sizes)
    # As a mean over all pairs once data parallel training has taken the mean over ranks.
    weight = len(sizes) / max(count * (count - 1), 1)
    inside = torch.zeros((), dtype=torch.long, device=rows.device)

    def by_autograd(rows: Tensor, columns: Tensor | None = None) -> Tensor:
        every = rows if columns is None else columns
        return plain.band_penalties(rows, every, own, lower, upper)[0] * weight

    def engine(
        rows: Tensor, columns: Tensor | None = None, *, needed: Sequence[bool]
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the weighted sum of penalties over all pairs of a row and another column.

        With c the cosine and the band's middle and half width in cosines, the penalty
        |(D - δ⁺)(D - δ⁻)| is (half² - (c - middle)²)/4 inside the band. Without columns they are
        the rows: each pair is computed once and counts in both orders.
        """
        middle, half = 1.0 - lower - upper, upper - lower
        every = rows if columns is None else columns
        tiles = geometry.row_tiles(len(rows), len(every), tile_size, rows.device)
        for_rows = torch.zeros_like(rows)
        for_columns = for_rows if columns is None else torch.zeros_like(every)
        peak = rows.new_full((), half**2)
        total = rows.new_zeros(())
        work = rows.new_empty(2, tiles[0].stop * len(every))
        for tile in tiles:
            height = tile.stop - tile.start
            # What lies left of the tile was seen before; what lies right of it counts twice.
            left, right = (tile.start, height) if columns is None else (0, 0)
            width = len(every) - left
            offset, penalty = (part[: height * width].view(height, width) for part in work)
            torch.mm(rows[tile], every[left:].t(), out=offset).sub_(middle)
            itself = own.start + tile.start - left
            offset[:, itself : itself + height].diagonal().fill_(half + 1.0)  # is in no band
            torch.addcmul(peak, offset, offset, value=-1.0, out=penalty).clamp_min_(0.0)
            counted = [penalty, penalty[:, right:]] if columns is None else [penalty]
            for part in counted:
                total += part.sum()
            is_inside = penalty.sign_()
            for part in counted:
                # Row by row, because the sum over a whole tile can exceed what float32 counts; a
                # row that holds a NaN counts for nothing.
                inside.add_(part.sum(dim=1).nan_to_num_(nan=0.0).long().sum())
            if any(needed):
                offset.mul_(is_inside)
                for_rows[tile].addmm_(offset, every[left:])
                for_columns[left + right :].addmm_(offset[:, right:].t(), rows[tile])
        loss = total * (0.25 * weight)
        if columns is None:
            return loss, [for_rows.mul_(-weight)]
        return loss, [for_rows.mul_(-0.5 * weight), for_columns.mul_(-0.5 * weight)]

    vectors = [rows] if len(sizes) == 1 else [rows, gather(rows, sizes, with_gradient=True)]
    return geometry.EngineLoss.apply(engine, by_autograd, *vectors), inside
