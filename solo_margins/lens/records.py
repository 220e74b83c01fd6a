"""What the lens saw in a run, as lines of JSON in the run's folder.

The first line describes the run, each further one is an observation, a warning or what the lens
cost. A line is written at once, so that a run which was killed keeps all but its last line, and
can be read while it trains.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> writer = Writer(Path(folder.name))
    >>> writer.begin({"method": "byol_curv"}, first_step=0)
    >>> seen = Histogram.of(torch.tensor([0.1, 0.2, 0.9]), low=0.0, high=1.0, bins=2)
    >>> writer.observation(Observation(5, 0.5, scalars={"q": 0.4}, histograms={"q": seen}))
    >>> run = read(Path(folder.name))
    >>> run.header["method"], run.observations[0].scalars["q"], run.observations[0].histograms["q"]
    ('byol_curv', 0.4, Histogram(low=0.0, high=1.0, counts=[2, 1]))
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from solo_margins.lens.files import complete_file

FILE = "lens.jsonl"
"""Name of the file in a run's folder."""
FORMAT = 1


@dataclass(frozen=True)
class Histogram:
    """Counts of values in bins of equal width."""

    low: float
    high: float
    counts: list[int]

    @classmethod
    def of(cls, values: Tensor, low: float, high: float, bins: int) -> Histogram:
        """Count values; those outside of the range are counted at its ends."""
        found = torch.histc(values.detach().float().clamp(low, high), bins, low, high)
        return cls(low, high, [int(count) for count in found.tolist()])

    @property
    def total(self) -> int:
        """How many values were counted."""
        return sum(self.counts)

    @property
    def edges(self) -> list[float]:
        """Where bins begin, and where the last one ends."""
        width = (self.high - self.low) / len(self.counts)
        return [self.low + place * width for place in range(len(self.counts) + 1)]

    @property
    def centres(self) -> list[float]:
        """The middle of every bin."""
        return [(low + high) / 2 for low, high in pairwise(self.edges)]


@dataclass(frozen=True)
class Observation:
    """One look at a batch."""

    step: int
    """Optimiser steps taken before."""
    epoch: float
    scalars: dict[str, float]
    """Name of a quantity to its value; see :mod:`solo_margins.lens.measures`."""
    histograms: dict[str, Histogram] = field(default_factory=dict)
    margins: dict[str, Any] = field(default_factory=dict)
    """The fields of ``Margins`` at this step, where they are scheduled too."""


@dataclass(frozen=True)
class Warned:
    """A warning that the user was given."""

    step: int
    name: str
    text: str


@dataclass(frozen=True)
class LensRun:
    """All that a run's file holds."""

    header: dict[str, Any] = field(default_factory=dict)
    """``method``, ``name``, ``host``, ``versions``, ``margins``, ``polarization``, …"""
    observations: list[Observation] = field(default_factory=list)
    warnings: list[Warned] = field(default_factory=list)
    cost: dict[str, float] = field(default_factory=dict)
    """``observations``, ``seconds`` and ``training_seconds`` of the last part that was trained."""
    problems: list[str] = field(default_factory=list)
    """A sentence for everything that could not be read."""


class Writer:
    """Writes a run's file, line by line.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE

    def begin(self, header: Mapping[str, Any], first_step: int) -> None:
        """Start the file, or go on with that of a resumed run.

        What an interrupted run saw behind the checkpoint that it continues from will be seen
        again, and is dropped.
        """
        kept = []
        if first_step > 0 and self.path.exists():
            for line in self.path.read_bytes().split(b"\n"):
                content = _parsed(line)
                if content is not None and content.get("kind") in ("observation", "warning"):
                    step = content.get("step")
                    if isinstance(step, int) and step < first_step:
                        kept.append(line)
        first = _line({"kind": "header", "format": FORMAT, **header})
        with complete_file(self.path) as partial:
            partial.write_bytes(b"".join([first, *(line + b"\n" for line in kept)]))

    def observation(self, seen: Observation) -> None:
        """Add an observation."""
        self._append({"kind": "observation", **asdict(seen)})

    def warning(self, warned: Warned) -> None:
        """Add a warning."""
        self._append({"kind": "warning", **asdict(warned)})

    def cost(self, **figures: float) -> None:
        """Add what the lens took."""
        self._append({"kind": "cost", **figures})

    def _append(self, content: Mapping[str, Any]) -> None:
        with open(self.path, "ab") as file:
            file.write(_line(content))


def _line(content: Mapping[str, Any]) -> bytes:
    return json.dumps(_finite(content), allow_nan=False).encode() + b"\n"


def _finite(value: Any) -> Any:
    """Return a value as JSON can hold it: what is infinite as text, what is no number as null."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        content = json.loads(line)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def read(folder: Path) -> LensRun:
    """Return what the lens wrote into a run's folder; ``problems`` says what could not be read.

    Raises:
        FileNotFoundError: the run has no such file.
    """
    path = folder / FILE
    run = LensRun()
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            _add(run, json.loads(line))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            # What is complete ends with a newline, so that the last part is empty.
            state = "half-written" if number == len(lines) else "unreadable"
            run.problems.append(f"{path}: line {number} is {state} and left out.")
    if not run.header:
        run.problems.append(f"{path} does not say what it is of: its first line is missing.")
    run.observations.sort(key=lambda seen: seen.step)
    return run


def _add(run: LensRun, content: dict[str, Any]) -> None:
    kind = content.pop("kind")
    if kind == "header":
        run.header.update(content)
    elif kind == "observation":
        run.observations.append(
            Observation(
                step=int(content["step"]),
                epoch=float(content["epoch"]),
                scalars={name: _number(value) for name, value in content["scalars"].items()},
                histograms={
                    name: _histogram(value) for name, value in content["histograms"].items()
                },
                margins={
                    name: _number(value) if value in ("inf", "-inf") else value
                    for name, value in content["margins"].items()
                },
            )
        )
    elif kind == "warning":
        run.warnings.append(
            Warned(int(content["step"]), str(content["name"]), str(content["text"]))
        )
    elif kind == "cost":
        run.cost.update({name: _number(value) for name, value in content.items()})
    else:
        raise ValueError(kind)


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _histogram(value: dict[str, Any]) -> Histogram:
    low, high, counts = float(value["low"]), float(value["high"]), value["counts"]
    if not high > low or not counts or not all(isinstance(n, int) and n >= 0 for n in counts):
        raise ValueError("no histogram")
    return Histogram(low, high, list(counts))
