"""The engine's losses of rows against columns: which vectors are compared, and as what.

``tile_size`` is the number of rows of the similarity matrix that are held at a time; None chooses.
The numbers are the same for every value.
"""

from torch import Tensor

from solo_margins.losses.engine import positives
from solo_margins.losses.engine.contrastive import contrastive_loss
from solo_margins.losses.engine.geometry import unit_vectors
from solo_margins.losses.gather import batch_sizes, gather, own_rows
from solo_margins.losses.margins import ContrastSpec


def query_key(
    query: Tensor,
    key: Tensor,
    spec: ContrastSpec,
    with_gradient: bool = False,
    tile_size: int | None = None,
) -> Tensor:
    """Return the mean loss of queries against all keys; key i is the positive of query i."""
    rows, columns = unit_vectors(query, key)
    sizes = batch_sizes(rows, spec.gathers)
    pairs = positives.diagonal_positives(own_rows(sizes), sum(sizes), rows.device)
    columns = gather(columns, sizes, with_gradient)
    return contrastive_loss(rows, columns, pairs, spec, len(sizes), tile_size)


def views(z: Tensor, number: int, spec: ContrastSpec, tile_size: int | None = None) -> Tensor:
    """Return the mean loss of so many views of distinct samples, each against all other rows."""
    (rows,) = unit_vectors(z)
    sizes = batch_sizes(rows, spec.gathers)
    pairs = positives.view_positives(number, own_rows(sizes), sum(sizes), rows.device)
    columns = None if len(sizes) == 1 else gather(rows, sizes, with_gradient=True)
    return contrastive_loss(rows, columns, pairs, spec, len(sizes), tile_size)


def same_id(z: Tensor, ids: Tensor, spec: ContrastSpec, tile_size: int | None = None) -> Tensor:
    """Return the mean loss of rows against all other rows; those with the same id are positives.

    Angles of positives come from the matrix of cosines: in float32 those below 0.06° or within
    0.06° of 180° are rounded.
    """
    (rows,) = unit_vectors(z)
    sizes = batch_sizes(rows, spec.gathers)
    pairs = positives.same_id_positives(ids, gather(ids, sizes), own_rows(sizes), rows.dtype)
    columns = None if len(sizes) == 1 else gather(rows, sizes, with_gradient=True)
    return contrastive_loss(rows, columns, pairs, spec, len(sizes), tile_size)


def queue(
    query: Tensor,
    key: Tensor,
    negatives: Tensor,
    spec: ContrastSpec,
    tile_size: int | None = None,
) -> Tensor:
    """Return the mean loss of queries against their own key and the columns of a queue."""
    rows, keys, columns = unit_vectors(query, key.detach(), negatives.detach().t())
    sizes = batch_sizes(rows, spec.gathers)
    pairs = positives.paired_positives(keys, sum(sizes))
    return contrastive_loss(rows, columns, pairs, spec, len(sizes), tile_size)


def prototypes(
    z: Tensor,
    centres: Tensor,
    assignments: Tensor,
    spec: ContrastSpec,
    tile_size: int | None = None,
) -> Tensor:
    """Return the mean loss of rows against centres; the assigned one is the positive, -1 none."""
    rows, columns = unit_vectors(z, centres.detach())
    pairs = positives.assigned_positives(assignments, rows.dtype)
    return contrastive_loss(rows, columns, pairs, spec, tile_size=tile_size)
