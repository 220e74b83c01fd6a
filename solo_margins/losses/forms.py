"""The losses of embeddings, by the engine or by the plain form.

Both forms have these functions, with the same numbers. The engine is fast and small in memory. The
plain form, `solo_margins.losses.plain`, runs where torch traces what is computed: inside
``torch.compile`` and in the transformations of ``torch.func``. Both compute in float32 or better,
whatever autocast says: near cos = 1 half precision cannot tell angles apart.
"""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from solo_margins.losses import engine, plain
from solo_margins.losses.checks import is_traced
from solo_margins.losses.margins import ContrastSpec, Margins, require_margins_of_rows


def query_key(
    query: Tensor, key: Tensor, spec: ContrastSpec, with_gradient: bool = False
) -> Tensor:
    """Return the mean loss of queries against all keys; key i is the positive of query i.

    Keys of other ranks are gathered without gradient, unless it is asked for.
    """
    require_margins_of_rows(spec.margins, query)
    if is_traced():
        return plain.query_key(query, key, spec, with_gradient)
    with _full_precision(query):
        return engine.query_key(query, key, spec, with_gradient)


def views(z: Tensor, number: int, spec: ContrastSpec) -> Tensor:
    """Return the mean loss of so many views of distinct samples, each against all other rows."""
    require_margins_of_rows(spec.margins, z)
    if is_traced():
        return plain.views(z, number, spec)
    with _full_precision(z):
        return engine.views(z, number, spec)


def same_id(z: Tensor, ids: Tensor, spec: ContrastSpec) -> Tensor:
    """Return the mean loss of rows against all other rows; those with the same id are positives."""
    require_margins_of_rows(spec.margins, z)
    if is_traced():
        return plain.same_id(z, ids, spec)
    with _full_precision(z):
        return engine.same_id(z, ids, spec)


def queue(query: Tensor, key: Tensor, negatives: Tensor, spec: ContrastSpec) -> Tensor:
    """Return the mean loss of queries against their own key and the columns of a queue."""
    require_margins_of_rows(spec.margins, query)
    if is_traced():
        return plain.queue(query, key, negatives, spec)
    with _full_precision(query):
        return engine.queue(query, key, negatives, spec)


def prototypes(z: Tensor, centres: Tensor, assignments: Tensor, spec: ContrastSpec) -> Tensor:
    """Return the mean loss of rows against centres; the assigned one is the positive, -1 none."""
    require_margins_of_rows(spec.margins, z)
    if is_traced():
        return plain.prototypes(z, centres, assignments, spec)
    with _full_precision(z):
        return engine.prototypes(z, centres, assignments, spec)


def positives_only(p: Tensor, z: Tensor, margins: Margins) -> Tensor:
    """Return minus the mean similarity with margins of pairs (p_i, z_i), with gradient for p."""
    require_margins_of_rows(margins, p)
    if is_traced():
        return plain.positives_only(p, z, margins)
    with _full_precision(p):
        return engine.positives_only(p, z, margins)


def polarization(z: Tensor, lower: float, upper: float) -> tuple[Tensor, Tensor]:
    """Return the mean penalty over ordered pairs of rows, and this rank's number in the band."""
    if is_traced():
        return plain.polarization(z, lower, upper)
    with _full_precision(z):
        return engine.polarization(z, lower, upper)


def _full_precision(embeddings: Tensor) -> AbstractContextManager[object]:
    """Return a block in which autocast is off for the device of some embeddings."""
    device = embeddings.device.type
    if _autocast_is_on(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()


def _autocast_is_on(device: str) -> bool:
    """Return whether autocast is on for a type of device, such as ``"cpu"``."""
    try:
        return torch.is_autocast_enabled(device)
    except TypeError:  # before torch 2.4
        return torch.is_autocast_cpu_enabled() if device == "cpu" else torch.is_autocast_enabled()
