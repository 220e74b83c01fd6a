"""Figures from what was measured: bars, curves, a heat map, a difference against the budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from reproduce.experiments import Entry, Experiment
from reproduce.tables import METRICS, Measured

LABELS = {"linear_acc1": "linear probe", "knn_acc1": "kNN"}


def draw(experiment: Experiment, items: Sequence[Measured], path: Path) -> bool:
    """Write the figure of an experiment; False if nothing of it was measured.

    Args:
        experiment: what to draw.
        items: what was measured.
        path: of the image; its ending says which kind.
    """
    items = [item for item in items if item.by_seed]
    if not items:
        return False
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    if experiment.other_axis is not None:
        figure = _heat_maps(pyplot, experiment, items)
    elif experiment.axis is not None and any(item.entry.baseline for item in items):
        figure = _differences(pyplot, items)
    elif experiment.axis is not None:
        figure = _curves(pyplot, experiment, items)
    else:
        figure = _bars(pyplot, items)
    figure.suptitle(experiment.title)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return True


Naming = Callable[[Entry], str]


def _grouped(items: Sequence[Measured], name_of: Naming) -> dict[str, list[Measured]]:
    groups: dict[str, list[Measured]] = {}
    for item in items:
        groups.setdefault(name_of(item.entry), []).append(item)
    return groups


def _curve(entry: Entry) -> str:
    """Return which curve an entry belongs to: a method, constant settings apart from ramps."""
    is_ramp = any(".schedules." in change for change in entry.cell.changes)
    return entry.row.split(",")[0] + (", ramped" if is_ramp else "")


def _panels(
    pyplot: Any, columns: dict[str, list[Measured]], margin: float, width: float, height: float
) -> tuple[Any, list[Any]]:
    """Return a figure and its axes, one for each column of the table."""
    size = margin + width * len(columns), height
    figure, axes = pyplot.subplots(1, len(columns), figsize=size, squeeze=False)
    for axis, column in zip(axes[0], columns, strict=True):
        axis.set_title(column)
    return figure, list(axes[0])


def _means_and_spreads(items: Sequence[Measured], metric: str) -> tuple[list[float], list[float]]:
    values = [value for item in items if (value := item.accuracy(metric)) is not None]
    return [value.mean for value in values], [value.std or 0.0 for value in values]


def _bars(pyplot: Any, items: Sequence[Measured]) -> Any:
    columns = _grouped(items, lambda entry: entry.column)
    rows = max(map(len, columns.values()))
    figure, axes = _panels(pyplot, columns, 2, 4.5, 1.5 + 0.45 * rows)
    for axis, shown in zip(axes, columns.values(), strict=True):
        ends = []
        for place, metric in enumerate(METRICS):
            means, spreads = _means_and_spreads(shown, metric)
            places = [number + 0.4 * place for number in range(len(shown))]
            axis.barh(places, means, height=0.38, xerr=spreads, label=LABELS[metric], capsize=2)
            ends += means
        axis.set_xlim(max(0.0, min(ends) - 5), min(100.0, max(ends) + 2))
        axis.set_yticks([number + 0.2 for number in range(len(shown))])
        axis.set_yticklabels([item.entry.row for item in shown])
        axis.invert_yaxis()
        axis.set_xlabel("accuracy, %")
        axis.grid(axis="x", alpha=0.3)
    axes[0].legend()
    return figure


def _curves(pyplot: Any, experiment: Experiment, items: Sequence[Measured]) -> Any:
    columns = _grouped(items, lambda entry: entry.column)
    figure, axes = _panels(pyplot, columns, 1, 4.5, 4.6)
    xs = [item.entry.x for item in items if item.entry.x is not None]
    finite = [x for x in xs if x and math.isfinite(x)]
    # What is off is right of the others.
    off = 2 * max(finite, default=1.0)
    label = f"{experiment.axis} (rightmost: off)" if math.inf in xs else experiment.axis
    for axis, shown in zip(axes, columns.values(), strict=True):
        for name, series in _grouped(shown, _curve).items():
            places = [off if item.entry.x == math.inf else item.entry.x for item in series]
            for metric in METRICS:
                means, spreads = _means_and_spreads(series, metric)
                text = f"{name}, {LABELS[metric]}"
                axis.errorbar(places, means, yerr=spreads, marker="o", capsize=3, label=text)
        axis.set_xscale("symlog", linthresh=min(finite, default=1.0))
        axis.set_xlabel(label)
        axis.set_ylabel("accuracy, %")
        axis.grid(alpha=0.3)
        # Below: wherever it is inside, it hides points.
        axis.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.16), ncol=2)
    return figure


def _differences(pyplot: Any, items: Sequence[Measured]) -> Any:
    figure, axis = pyplot.subplots(figsize=(6, 4))
    seeds_at: dict[float, int] = {}
    # Beside each other: error bars at one place hide each other.
    for metric, shift in zip(METRICS, (0.985, 1.015), strict=True):
        points = []
        for item in items:
            gained = item.difference(metric)
            if gained is not None:
                steps = next(iter(item.by_seed.values()))["steps"]
                seeds_at[steps] = len(item.seeds_of_both)
                points.append((steps * shift, gained.mean, gained.std or 0.0))
        if points:
            places, means, spreads = zip(*sorted(points), strict=True)
            axis.errorbar(places, means, yerr=spreads, marker="o", capsize=3, label=LABELS[metric])
    axis.axhline(0.0, color="black", linewidth=0.8)
    axis.set_xscale("log")
    axis.minorticks_off()
    names = [f"{steps:,.0f}\n{seeds} seed{'s' * (seeds != 1)}" for steps, seeds in seeds_at.items()]
    axis.set_xticks(list(seeds_at), names)
    axis.set_xlabel("optimiser steps")
    axis.set_ylabel("difference to the baseline, points")
    axis.grid(alpha=0.3)
    axis.legend()
    return figure


def _heat_maps(pyplot: Any, experiment: Experiment, items: Sequence[Measured]) -> Any:
    columns = _grouped(items, lambda entry: entry.column)
    figure, axes = _panels(pyplot, columns, 1, 5, 4.5)
    for axis, (column, shown) in zip(axes, columns.items(), strict=True):
        means, _ = _means_and_spreads(shown, "linear_acc1")
        places = [(item.entry.x or 0.0, item.entry.y or 0.0) for item in shown]
        by_place = dict(zip(places, means, strict=True))
        xs, ys = (sorted(set(values)) for values in zip(*places, strict=True))
        grid = [[by_place.get((x, y), math.nan) for x in xs] for y in ys]
        for (x, y), mean in by_place.items():
            axis.text(xs.index(x), ys.index(y), f"{mean:.1f}", ha="center", va="center")
        image = axis.imshow(grid, aspect="auto", origin="lower")
        axis.set_xticks(range(len(xs)), [f"{x:g}" for x in xs])
        axis.set_yticks(range(len(ys)), ["off" if math.isinf(y) else f"{y:.2g}" for y in ys])
        axis.set_xlabel(experiment.axis)
        axis.set_ylabel(experiment.other_axis)
        axis.set_title(f"{column}, linear probe")
        figure.colorbar(image, ax=axis, label="accuracy, %")
    return figure
