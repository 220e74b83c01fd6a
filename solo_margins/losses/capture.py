"""Captures the unit vectors that losses compare, without a change of the losses."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from solo_margins.losses.engine.positives import Positives
from solo_margins.losses.margins import ContrastSpec, Margins


@dataclass(frozen=True)
class CapturedContrast:
    """Rows that were compared with columns, among them positives and negatives."""

    rows: Tensor
    columns: Tensor
    positives: Positives
    spec: ContrastSpec


@dataclass(frozen=True)
class CapturedPairs:
    """Rows that were compared with one target each, without negatives."""

    rows: Tensor
    targets: Tensor
    margins: Margins


class LastStep:
    """Whether a loss with margins was called, also inside ``torch.compile``."""

    called_margin_loss = False


Captured = CapturedContrast | CapturedPairs
last_step = LastStep()
_active: list[list[Captured]] = []


@contextmanager
def capture() -> Iterator[list[Captured]]:
    """Collect what the losses of this process compare inside the block, without gradients.

    Losses inside ``torch.compile`` are not captured.
    """
    captured: list[Captured] = []
    _active.append(captured)
    try:
        yield captured
    finally:
        # By identity: two empty lists are equal.
        _active[:] = [other for other in _active if other is not captured]


def report(kind: Callable[..., Captured], rows: Tensor, others: Tensor, *structure: Any) -> None:
    """Pass what a loss compares to every active :func:`capture`."""
    for captured in _active:
        captured.append(kind(rows.detach(), others.detach(), *structure))
