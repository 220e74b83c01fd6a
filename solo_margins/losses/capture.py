"""Captures the unit vectors that losses compare, without a change of the losses."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from torch import Tensor

from solo_margins.losses.engine.positives import Positives, SameId
from solo_margins.losses.margins import ContrastSpec, Margins


@dataclass(frozen=True)
class CapturedContrast:
    """Rows that were compared with columns, among them positives and negatives."""

    rows: Tensor
    columns: Tensor
    positives: Positives | SameId
    spec: ContrastSpec


@dataclass(frozen=True)
class CapturedPairs:
    """Rows that were compared with one target each, without negatives."""

    rows: Tensor
    targets: Tensor
    margins: Margins


Captured = CapturedContrast | CapturedPairs
_open_blocks: ContextVar[tuple[list[Captured], ...]] = ContextVar("open_blocks", default=())


@contextmanager
def capture() -> Iterator[list[Captured]]:
    """Collect what the losses compare inside the block, without gradients.

    A loss is called deep inside of a training step, whose author passes nothing on for an observer.
    So the open blocks are held in a `contextvars.ContextVar`, and losses report to them. It
    belongs to the running thread, or asynchronous task, not to the process: a step that runs beside
    is not mixed in. Outside of such blocks it is empty, and a report does nothing. Replacing the
    losses' functions, the other way, would change modules for everybody and miss names that were
    imported before.

    Losses that torch traces, inside ``torch.compile`` and ``torch.func``, are not captured.
    """
    captured: list[Captured] = []
    _open_blocks.set((*_open_blocks.get(), captured))
    try:
        yield captured
    finally:
        # By identity: two empty lists are equal.
        _open_blocks.set(tuple(block for block in _open_blocks.get() if block is not captured))


def report_contrast(
    rows: Tensor, columns: Tensor, positives: Positives | SameId, spec: ContrastSpec
) -> None:
    """Pass rows, columns and which of them are positives to every open block."""
    for block in _open_blocks.get():
        block.append(CapturedContrast(rows.detach(), columns.detach(), positives, spec))


def report_pairs(rows: Tensor, targets: Tensor, margins: Margins) -> None:
    """Pass rows and their targets to every open block."""
    for block in _open_blocks.get():
        block.append(CapturedPairs(rows.detach(), targets.detach(), margins))
