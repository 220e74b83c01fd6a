"""Lets somebody else see the vectors that a loss compares, without a change of the loss."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from solo_margins.losses.margins import Margins

if TYPE_CHECKING:
    from solo_margins.losses._contrast import Contrast


@dataclass(frozen=True)
class SeenContrast:
    """Rows that were compared with columns, positives and negatives among them."""

    rows: Tensor
    """(N, D) unit vectors."""
    columns: Tensor
    """(M, D) unit vectors."""
    setting: Contrast


@dataclass(frozen=True)
class SeenPairs:
    """Rows that were compared with one target each, without negatives."""

    rows: Tensor
    """(N, D) unit vectors."""
    targets: Tensor
    """(N, D) unit vectors."""
    margins: Margins


Seen = SeenContrast | SeenPairs

_open: list[list[Seen]] = []


@contextmanager
def observing() -> Iterator[list[Seen]]:
    """Collect, without gradients, what losses of this process compare while the block runs."""
    seen: list[Seen] = []
    _open.append(seen)
    try:
        yield seen
    finally:
        # By identity: two lists with the same content are equal.
        _open[:] = [other for other in _open if other is not seen]


def report_contrast(rows: Tensor, columns: Tensor | None, setting: Contrast) -> None:
    """Tell whoever observes what a contrastive loss compares."""
    if _open:
        others = rows if columns is None else columns
        _tell(SeenContrast(rows.detach(), others.detach(), setting))


def report_pairs(rows: Tensor, targets: Tensor, margins: Margins) -> None:
    """Tell whoever observes which pairs a loss without negatives compares."""
    if _open:
        _tell(SeenPairs(rows.detach(), targets.detach(), margins))


def _tell(seen: Seen) -> None:
    for observer in _open:
        observer.append(seen)
