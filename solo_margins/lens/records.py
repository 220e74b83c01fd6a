"""The observations of a run, as lines of JSON in its folder.

The first line describes the run; every further line is an observation, a warning or the cost of the
lens. Lines are written immediately, so that a killed run loses at most its last line, and the file
can be read during training.

    >>> import dataclasses, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name) / FILE
    >>> begin(path, {"method": "byol_curv"}, first_step=0)
    >>> counted = Histogram.of(torch.tensor([0.1, 0.2, 0.9]), low=0.0, high=1.0, bins=2)
    >>> seen = Observation(5, 0.5, scalars={"q": 0.4}, histograms={"q": counted})
    >>> add(path, "observation", dataclasses.asdict(seen))
    >>> run = read(Path(folder.name))
    >>> run.header["method"], run.observations[0].scalars["q"], run.observations[0].histograms["q"]
    ('byol_curv', 0.4, Histogram(low=0.0, high=1.0, counts=[2, 1]))
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from solo_margins.files import append_line, complete_file, read_lines
from solo_margins.losses.margins import FIELDS, Margins

FILE = "lens.jsonl"  # in the run's folder
# Numbers that JSON does not have, as Python writes them, and what is written instead.
CONSTANTS = {"NaN": None, "Infinity": "inf", "-Infinity": "-inf"}
# Quantities that files of earlier versions have under another name.
RENAMED = {"effective_rank": "rankme"}


@dataclass(frozen=True)
class Histogram:
    """Counts of values in bins of equal width."""

    low: float
    high: float
    counts: list[int]

    def __post_init__(self) -> None:
        are_counts = all(isinstance(count, int) and count >= 0 for count in self.counts)
        if not (self.high > self.low and self.counts and are_counts):
            raise ValueError("not a histogram")

    @classmethod
    def of(cls, values: Tensor, low: float, high: float, bins: int) -> Histogram:
        """Count values; values outside the range count at its ends."""
        # On the CPU: a GPU counts in no fixed order, which deterministic=true refuses.
        counts = torch.histc(values.detach().float().clamp(low, high).cpu(), bins, low, high)
        return cls(low, high, [int(count) for count in counts.tolist()])

    @property
    def edges(self) -> list[float]:
        """The edges of all bins."""
        width = (self.high - self.low) / len(self.counts)
        return [self.low + number * width for number in range(len(self.counts) + 1)]


@dataclass(frozen=True)
class Observation:
    """What was measured on one batch.

    Attributes:
        step: optimiser steps taken before.
        epoch: epochs trained before, with their fraction; NaN where nobody counts them.
        scalars: name of a quantity to its value; see `solo_margins.lens.measures`.
        histograms: name of a quantity to the counts of its values.
        margins: the fields of ``Margins`` at this step, scheduled ones included; see
            `recorded_margins`.
    """

    step: int
    epoch: float
    scalars: dict[str, float]
    histograms: dict[str, Histogram] = field(default_factory=dict)
    margins: dict[str, Any] = field(default_factory=dict)


class HealthWarning(NamedTuple):
    """A warning that a run gave: at which step, by which rule, in which words."""

    step: int
    name: str
    text: str


@dataclass(frozen=True)
class LensRun:
    """The content of a run's file.

    Attributes:
        header: ``every``, ``name``, ``method``, ``versions`` and ``settings``, which are empty
            where the run has no configuration.
        observations: by their steps.
        warnings: the warnings about its health.
        cost: ``observations``, ``seconds`` and ``training_seconds`` of the last process.
        problems: a message about everything unreadable.
    """

    header: dict[str, Any] = field(default_factory=dict)
    observations: list[Observation] = field(default_factory=list)
    warnings: list[HealthWarning] = field(default_factory=list)
    cost: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def recorded_margins(margins: Margins) -> dict[str, Any]:
    """Return margins as an observation has them.

    Of a setting with one number for each row it is their mean, of a function its name.

    >>> recorded_margins(Margins(angular=torch.tensor([0.25, 0.75])))["angular"]
    0.5
    """
    recorded: dict[str, Any] = {}
    for name in FIELDS:
        value = getattr(margins, name)
        recorded[name] = value.float().mean().item() if isinstance(value, Tensor) else value
    if margins.scaling is not None:
        recorded["scaling"] = name_of(margins.scaling)
    return recorded


def name_of(function: Any) -> str:
    """Return the name of a function with its module, or that of an object's class.

    >>> name_of(partial(name_of, "x"))
    'solo_margins.lens.records.name_of'
    """
    if isinstance(function, partial):
        return name_of(function.func)
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def begin(path: Path, header: Mapping[str, Any], first_step: int) -> None:
    """Start a run's file, or continue that of a resumed run.

    Observations after the checkpoint of a resumed run are dropped; they will be made again.
    """
    lines = [_json({"kind": "header", **header})]
    if first_step > 0 and path.exists():
        for content in read_lines(path, json.loads)[0]:
            step = content.get("step") if isinstance(content, dict) else None
            if isinstance(step, int) and step < first_step:
                lines.append(json.dumps(content))
    with complete_file(path) as unfinished:
        unfinished.write_text("".join(f"{line}\n" for line in lines))


def add(path: Path, kind: str, content: Mapping[str, Any]) -> None:
    """Add a line to a run's file: an ``observation``, a ``warning`` or the ``cost`` of the lens."""
    append_line(path, _json({"kind": kind, **content}))


def _json(content: Any) -> str:
    """Return strict JSON: infinite numbers as text, NaN as null."""
    plain = json.loads(json.dumps(content, default=str), parse_constant=CONSTANTS.get)
    return json.dumps(plain)


def read(folder: Path) -> LensRun:
    """Return the content of a run's file; its ``problems`` list what could not be read.

    Raises:
        FileNotFoundError: the run has no such file.
    """
    run = LensRun()
    _, problems = read_lines(folder / FILE, lambda line: _add(run, json.loads(line)))
    run.problems.extend(problems)
    if not run.header:
        run.problems.append(f"{folder / FILE} has no header line: its run is unknown.")
    run.observations.sort(key=lambda seen: seen.step)
    return run


def _add(run: LensRun, content: dict[str, Any]) -> None:
    kind = content.pop("kind")
    if kind == "header":
        run.header.update(content)
    elif kind == "cost":
        run.cost.update(_numbers(content))
    elif kind == "warning":
        run.warnings.append(HealthWarning(int(content["step"]), content["name"], content["text"]))
    elif kind == "observation":
        epoch = _numbers({"epoch": content["epoch"]})["epoch"]
        seen = Observation(int(content["step"]), epoch, scalars={})
        for name, value in _numbers(content["scalars"]).items():
            seen.scalars[RENAMED.get(name, name)] = value
        for name, one in content["histograms"].items():
            seen.histograms[name] = Histogram(float(one["low"]), float(one["high"]), one["counts"])
        for name, value in content["margins"].items():
            seen.margins[name] = float(value) if value in ("inf", "-inf") else value
        run.observations.append(seen)
    else:
        raise ValueError(f"unknown kind {kind!r}")


def _numbers(content: dict[str, Any]) -> dict[str, float]:
    return {name: math.nan if value is None else float(value) for name, value in content.items()}
