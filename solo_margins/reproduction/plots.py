"""Figures from what was measured: bars, curves, a heat map, a difference against the budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from solo_margins.reproduction.experiments import Experiment
from solo_margins.reproduction.tables import METRICS, Measured, baselines

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


def _columns(items: Sequence[Measured]) -> list[str]:
    return list(dict.fromkeys(item.entry.column for item in items))


def _bars(pyplot: Any, items: Sequence[Measured]) -> Any:
    columns = _columns(items)
    rows = max(sum(item.entry.column == column for item in items) for column in columns)
    figure, axes = pyplot.subplots(
        1, len(columns), figsize=(2 + 4.5 * len(columns), 1.5 + 0.45 * rows), squeeze=False
    )
    for axis, column in zip(axes[0], columns, strict=True):
        shown = [item for item in items if item.entry.column == column]
        for place, metric in enumerate(METRICS):
            values = [item.accuracy(metric) for item in shown]
            axis.barh(
                [number + 0.4 * place for number in range(len(shown))],
                [value.mean for value in values if value is not None],
                height=0.38,
                xerr=[value.std or 0.0 for value in values if value is not None],
                label=LABELS[metric],
                capsize=2,
            )
        means = [item.accuracy(metric).mean for item in shown for metric in METRICS]  # type: ignore[union-attr]
        axis.set_xlim(max(0.0, min(means) - 5), min(100.0, max(means) + 2))
        axis.set_yticks([number + 0.2 for number in range(len(shown))])
        axis.set_yticklabels([item.entry.row for item in shown])
        axis.invert_yaxis()
        axis.set_title(column)
        axis.set_xlabel("accuracy, %")
        axis.grid(axis="x", alpha=0.3)
    axes[0][0].legend()
    return figure


def _place(x: float | None, largest: float) -> float:
    """Return where a value stands on a logarithmic axis: what is off stands right of the others."""
    assert x is not None
    return 2 * largest if math.isinf(x) else x


def _curves(pyplot: Any, experiment: Experiment, items: Sequence[Measured]) -> Any:
    columns = _columns(items)
    figure, axes = pyplot.subplots(
        1, len(columns), figsize=(1 + 4.5 * len(columns), 4.6), squeeze=False
    )
    finite = [item.entry.x for item in items if item.entry.x and math.isfinite(item.entry.x)]
    largest = max(finite, default=1.0)
    for axis, column in zip(axes[0], columns, strict=True):
        by_series: dict[str, list[Measured]] = {}
        for item in items:
            if item.entry.column == column:
                is_ramp = bool(item.entry.cell.changes) and "schedules" in str(
                    item.entry.cell.changes
                )
                name = item.entry.row.split(",")[0] + (", ramped" if is_ramp else "")
                by_series.setdefault(name, []).append(item)
        for name, series in by_series.items():
            for metric in METRICS:
                values = [item.accuracy(metric) for item in series]
                axis.errorbar(
                    [_place(item.entry.x, largest) for item in series],
                    [value.mean for value in values if value is not None],
                    yerr=[value.std or 0.0 for value in values if value is not None],
                    marker="o",
                    capsize=3,
                    label=f"{name}, {LABELS[metric]}",
                )
        axis.set_xscale("symlog", linthresh=min(finite, default=1.0))
        axis.set_xlabel(
            f"{experiment.axis} (rightmost: off)" if _has_off(items) else experiment.axis
        )
        axis.set_ylabel("accuracy, %")
        axis.set_title(column)
        axis.grid(alpha=0.3)
        # Below: wherever it is inside, it hides points.
        axis.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.16), ncol=2)
    return figure


def _has_off(items: Sequence[Measured]) -> bool:
    return any(item.entry.x is not None and math.isinf(item.entry.x) for item in items)


def _differences(pyplot: Any, items: Sequence[Measured]) -> Any:
    figure, axis = pyplot.subplots(figsize=(6, 4))
    by_place = baselines(items)
    pairs = [
        (item, by_place[item.entry.baseline, item.entry.column])
        for item in items
        if item.entry.baseline and (item.entry.baseline, item.entry.column) in by_place
    ]
    seeds_at: dict[float, int] = {}
    # Beside each other: error bars at one place hide each other.
    for metric, shift in zip(METRICS, (0.985, 1.015), strict=True):
        points = []
        for item, other in pairs:
            gained = item.difference(other, metric)
            if gained is not None:
                steps = next(iter(item.by_seed.values())).get("steps", item.entry.x)
                assert steps is not None
                seeds_at[steps] = len(item.by_seed.keys() & other.by_seed.keys())
                points.append((steps * shift, gained.mean, gained.std or 0.0))
        points.sort()
        if points:
            places, means, spreads = zip(*points, strict=True)
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
    columns = _columns(items)
    figure, axes = pyplot.subplots(
        1, len(columns), figsize=(1 + 5 * len(columns), 4.5), squeeze=False
    )
    for axis, column in zip(axes[0], columns, strict=True):
        shown = [item for item in items if item.entry.column == column]
        xs = sorted({item.entry.x for item in shown if item.entry.x is not None})
        ys = sorted({item.entry.y for item in shown if item.entry.y is not None})
        grid = [[math.nan] * len(xs) for _ in ys]
        for item in shown:
            value = item.accuracy("linear_acc1")
            if value is not None and item.entry.x is not None and item.entry.y is not None:
                place = ys.index(item.entry.y), xs.index(item.entry.x)
                grid[place[0]][place[1]] = value.mean
                axis.text(place[1], place[0], f"{value.mean:.1f}", ha="center", va="center")
        image = axis.imshow(grid, aspect="auto", origin="lower")
        axis.set_xticks(range(len(xs)), [f"{x:g}" for x in xs])
        axis.set_yticks(range(len(ys)), ["off" if math.isinf(y) else f"{y:.2g}" for y in ys])
        axis.set_xlabel(experiment.axis)
        axis.set_ylabel(experiment.other_axis)
        axis.set_title(f"{column}, linear probe")
        figure.colorbar(image, ax=axis, label="accuracy, %")
    return figure
