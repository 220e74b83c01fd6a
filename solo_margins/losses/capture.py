"""Lets somebody else see the vectors that losses compare, without a change of the losses."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from solo_margins.losses import plain
from solo_margins.losses.checks import is_compiling
from solo_margins.losses.engine.positives import Positives, masked_positives
from solo_margins.losses.margins import ContrastSpec, Margins


@dataclass(frozen=True)
class CapturedContrast:
    """Rows that were compared with columns, positives and negatives among them: unit vectors."""

    rows: Tensor
    columns: Tensor
    positives: Positives
    spec: ContrastSpec


@dataclass(frozen=True)
class CapturedPairs:
    """Rows that were compared with one target each, without negatives: unit vectors."""

    rows: Tensor
    targets: Tensor
    margins: Margins


Captured = CapturedContrast | CapturedPairs


@contextmanager
def capture() -> Iterator[list[Captured]]:
    """Collect, without gradients, what losses of this process compare while the block runs."""
    captured: list[Captured] = []

    def observer(rows: Tensor, others: Tensor, *structure: Any) -> None:
        if is_compiling():
            return
        rows, others = rows.detach(), others.detach()
        if isinstance(structure[0], Margins):
            captured.append(CapturedPairs(rows, others, structure[0]))
            return
        *positives, spec = structure
        found = positives[0] if len(positives) == 1 else masked_positives(*positives)
        captured.append(CapturedContrast(rows, others, found, spec))

    plain.observers.append(observer)
    try:
        yield captured
    finally:
        plain.observers.remove(observer)
