"""The functions of :mod:`solo_margins.losses.plain`, computed by the engine."""

from collections.abc import Sequence

import torch
from torch import Tensor

from solo_margins.losses import plain
from solo_margins.losses.capture import CapturedPairs, report
from solo_margins.losses.engine.contrastive import contrastive_loss
from solo_margins.losses.engine.function import EngineLoss
from solo_margins.losses.engine.geometry import angles_between, chord, positive_grad, unit_vectors
from solo_margins.losses.engine.polarization import polarization
from solo_margins.losses.engine.positives import (
    assigned_positives,
    diagonal_positives,
    paired_positives,
    same_id_positives,
)
from solo_margins.losses.gather import batch_sizes, gather, own_rows
from solo_margins.losses.margins import ContrastSpec, Margins

__all__ = ["polarization", "positives_only", "prototypes", "query_key", "queue", "same_id"]


def query_key(
    query: Tensor,
    key: Tensor,
    spec: ContrastSpec,
    with_gradient: bool = False,
    tile_size: int | None = None,
) -> Tensor:
    """Return the mean loss of queries against all keys; key i is the positive of query i."""
    rows, columns = unit_vectors(query, key)
    sizes = batch_sizes(rows)
    positives = diagonal_positives(own_rows(sizes), sum(sizes), rows.device)
    columns = gather(columns, sizes, with_gradient)
    return contrastive_loss(rows, columns, positives, spec, len(sizes), tile_size)


def same_id(z: Tensor, ids: Tensor, spec: ContrastSpec, tile_size: int | None = None) -> Tensor:
    """Return the mean loss of rows against all other rows; those with the same id are positives."""
    (rows,) = unit_vectors(z)
    sizes = batch_sizes(rows)
    positives = same_id_positives(ids, gather(ids, sizes), own_rows(sizes))
    columns = None if len(sizes) == 1 else gather(rows, sizes, with_gradient=True)
    return contrastive_loss(rows, columns, positives, spec, len(sizes), tile_size)


def queue(query: Tensor, key: Tensor, negatives: Tensor, spec: ContrastSpec) -> Tensor:
    """Return the mean loss of queries against their own key and the columns of a queue."""
    rows, keys, columns = unit_vectors(query, key.detach(), negatives.detach().t())
    sizes = batch_sizes(rows)
    positives = paired_positives(keys, sum(sizes))
    return contrastive_loss(rows, columns, positives, spec, len(sizes))


def prototypes(z: Tensor, centres: Tensor, assignments: Tensor, spec: ContrastSpec) -> Tensor:
    """Return the mean loss of rows against centres; the assigned one is the positive, -1 none."""
    rows, columns = unit_vectors(z, centres.detach())
    return contrastive_loss(rows, columns, assigned_positives(assignments), spec)


def positives_only(p: Tensor, z: Tensor, margins: Margins) -> Tensor:
    """Return minus the mean similarity with margins of pairs (p_i, z_i), with gradient for p."""
    rows, targets = unit_vectors(p, z.detach())
    report(CapturedPairs, rows, targets, margins)

    def engine(rows: Tensor, needed: Sequence[bool]) -> tuple[Tensor, list[Tensor | None]]:
        angles = angles_between(rows, targets)
        loss = -margins.similarity(angles.cosine, angles.sine).mean()
        if not needed[0]:
            return loss, [None]
        dloss_dsim = torch.full_like(angles.angle, -1.0 / len(rows))
        factor = positive_grad(angles, margins, dloss_dsim).unsqueeze(1)
        return loss, [chord(rows, targets, angles.side).mul_(factor)]

    def by_autograd(rows: Tensor) -> Tensor:
        return plain.pair_losses(rows, targets, margins).mean()

    return EngineLoss.apply(engine, by_autograd, rows)
