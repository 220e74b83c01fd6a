"""The grid of runs behind every table and figure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from reproduce import read_yaml
from reproduce.papers import ATTENUATION, LINEAR_PROBING, TITLES, TRANSFER, Accuracy


@dataclass(frozen=True)
class Cell:
    """One pretraining: a recipe, and the Hydra overrides that change it."""

    method: str
    data: str
    variant: str
    changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    """Where the accuracy of a cell stands in a table or figure.

    Attributes:
        row: title of the row.
        column: title of the column.
        cell: the pretraining.
        probed_on: the data of the probe.
        paper: the accuracy that the paper reports.
        baseline: the row that this one is compared with.
        x: the place on the axis of a curve; infinite for a setting that is off.
        y: the place on the other axis of a heat map.
        seeds: the seeds that belong to it; none leaves them to the command.
        curve: the curve or the heat map that it belongs to, where its method does not say it.
    """

    row: str
    column: str
    cell: Cell
    probed_on: str
    paper: Accuracy | None = None
    baseline: str | None = None
    x: float | None = None
    y: float | None = None
    seeds: tuple[int, ...] = ()
    curve: str | None = None


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper, or one of ours.

    Attributes:
        title: of the table or figure.
        entries: what is in it.
        axis: what ``x`` of its entries is, where it is a curve or a heat map.
        other_axis: what ``y`` of them is, where it is a heat map.
        figures: what is shown besides accuracies.
    """

    title: str
    entries: tuple[Entry, ...]
    axis: str | None = None
    other_axis: str | None = None
    figures: tuple[str, ...] = ()


def row_title(method: str, variant: str) -> str:
    """Return what the paper calls a row.

    >>> row_title("mocov3_margin", "baseline"), row_title("mocov3_margin", "pos")
    ('MoCo v3', 'MoCo v3 + pos.')
    """
    added = TITLES[variant]
    return f"{TITLES[method]} + {added}" if added else TITLES[method]


def _entry(
    method: str, source: str, target: str, variant: str, paper: Accuracy | None = None
) -> Entry:
    """Return the entry of a recipe, which is compared with that of its method's baseline."""
    column = TITLES[source] if source == target else f"{TITLES[source]} → {TITLES[target]}"
    baseline = None if variant == "baseline" else TITLES[method]
    cell = Cell(method, source, variant)
    return Entry(row_title(method, variant), column, cell, target, paper, baseline)


def _table_2() -> Iterator[Entry]:
    for (method, data, alpha, kind), accuracy in ATTENUATION.items():
        row, baseline = TITLES[method], None
        changes: tuple[str, ...] = ()
        if alpha != "0":
            row, baseline = f"{row}, α = {alpha}, type {kind}", row
            setting = "method_kwargs.margins.attenuation"
            changes = (f"{setting}={alpha}", f"{setting}_type={kind}")
        cell = Cell(method, data, "baseline", changes)
        yield Entry(row, TITLES[data], cell, data, accuracy, baseline)


def _table_3() -> Iterator[Entry]:
    for (method, data, variant), accuracy in LINEAR_PROBING.items():
        yield _entry(method, data, data, variant, accuracy)


def _table_4() -> Iterator[Entry]:
    for (method, source, target, variant), accuracy in TRANSFER.items():
        yield _entry(method, source, target, variant, accuracy)


def _table_6() -> Iterator[Entry]:
    for method in ("mocov3_margin", "simclr_margin"):
        for variant in ("baseline", "pos_curv"):
            yield _entry(method, "imagenet", "imagenet", variant)


SMALL_DATA = ("cifar10", "cifar100", "stl10", "tinyimagenet")
# The paper names its curvatures (§5.3) but not the scales of its Figures 3 and 5.
CURVATURES = (1 / 3, 0.5, 0.7, 1.0, 1.5, 2.5, 5.0, math.inf)
SCALES = {
    "mocov3_margin": (1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 80.0),
    "simclr_margin": (1.0, 1.0625, 1.125, 1.25, 1.5, 2.0),
}


def _figure(method: str, **values: tuple[float, ...]) -> Iterator[Entry]:
    """Yield a method on all small data with every combination of values of some margins."""
    symbols = {"positive_scale": "s = {:g}", "curvature": "c = {:.3g}"}
    for data, point in itertools.product(SMALL_DATA, itertools.product(*values.values())):
        named = dict(zip(values, point, strict=True))
        row = ", ".join([TITLES[method], *(symbols[k].format(v) for k, v in named.items())])
        changes = tuple(f"method_kwargs.margins.{k}={v:g}" for k, v in named.items())
        x, y = [*point, None][:2]
        yield Entry(row, TITLES[data], Cell(method, data, "baseline", changes), data, x=x, y=y)


def _figure_3() -> Iterator[Entry]:
    for method, scales in SCALES.items():
        yield from _figure(method, positive_scale=scales)


def _figure_4() -> Iterator[Entry]:
    for method in ("mocov3_margin", "simclr_margin", "byol_curv"):
        yield from _figure(method, curvature=CURVATURES)


def _figure_5() -> Iterator[Entry]:
    scales = SCALES["mocov3_margin"]
    yield from _figure("mocov3_margin", positive_scale=scales, curvature=CURVATURES)


def _listed(grid: dict[str, Any]) -> Experiment:
    """Return an experiment of grids.yaml."""
    entries = []
    for row in grid["rows"]:
        method, data, variant = row["cell"]
        cell = Cell(method, data, variant, tuple(row.get("changes", ())))
        baseline, x = row.get("baseline"), row.get("x")
        entries.append(Entry(row["row"], TITLES[data], cell, data, baseline=baseline, x=x))
    return Experiment(grid["title"], tuple(entries), grid.get("axis"))


# Name on the command line to table or figure.
EXPERIMENTS = {
    "table2": Experiment("Attenuating the vanishing gradient (Table 2)", tuple(_table_2())),
    "table3": Experiment("Linear probe (Table 3)", tuple(_table_3())),
    "table4": Experiment("Transfer (Table 4)", tuple(_table_4())),
    "table6": Experiment("ImageNet (Table 6)", tuple(_table_6())),
    "figure3": Experiment(
        "Accuracy against the scale of positives (Figure 3)", tuple(_figure_3()), "s"
    ),
    "figure4": Experiment("Accuracy against the curvature (Figure 4)", tuple(_figure_4()), "c"),
    "figure5": Experiment("Scale and curvature together (Figure 5)", tuple(_figure_5()), "s", "c"),
    **{name: _listed(grid) for name, grid in read_yaml("grids.yaml").items()},
}
