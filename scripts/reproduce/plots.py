"""Figures from what was measured, a dot for each seed: rows, curves, and a heat map."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from reproduce.experiments import Entry, Experiment
from reproduce.tables import HEADINGS, METRICS, Measured

LABELS = {"linear_acc1": "linear probe", "knn_acc1": "kNN"}
PANELS_A_LINE = 4
MOST_COLORS = 10
MOST_INSIDE = 5  # more curves than that have their legend beside the panels
CLOSE_TICKS = 1.25  # neighbours by less than this factor have no room for both labels
MOST_TICKS = 8  # more values than that are not all named at the axis


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
    elif experiment.axis is not None:
        figure = _curves(pyplot, experiment, items)
    else:
        figure = _rows(pyplot, items)
    columns = {item.entry.column for item in items}
    is_one = experiment.axis is not None and len(columns) == 1
    figure.suptitle(f"{experiment.title}: {columns.pop()}" if is_one else experiment.title)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return True


Naming = Callable[[Entry], str]
Values = Callable[[Measured], list[float]]


def _grouped(items: Sequence[Measured], name_of: Naming) -> dict[str, list[Measured]]:
    groups: dict[str, list[Measured]] = {}
    for item in items:
        groups.setdefault(name_of(item.entry), []).append(item)
    return groups


def _curve(entry: Entry) -> str:
    """Return which curve an entry belongs to: a method, constant settings apart from ramps."""
    if entry.curve is not None:
        return entry.curve
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


def _rows(pyplot: Any, items: Sequence[Measured]) -> Any:
    """Draw the accuracies of every row and, beside them, its differences to its baseline.

    There is a line of panels for each column of the table.
    """
    columns = _grouped(items, lambda entry: entry.column)
    panels: dict[str, Callable[[str], Values]] = {"accuracy, %": _figure}
    if any(item.entry.baseline for item in items):
        panels["points above the baseline, with the mean's 95 % interval"] = _difference
    heights = [0.6 + 0.35 * len(shown) for shown in columns.values()]
    figure, axes = pyplot.subplots(
        len(columns),
        len(panels),
        figsize=(2 + 5.5 * len(panels), 1.2 + sum(heights)),
        height_ratios=heights,
        squeeze=False,
    )
    for line, (column, shown) in zip(axes, columns.items(), strict=True):
        for axis, (label, values_of) in zip(line, panels.items(), strict=True):
            for place, metric in enumerate(METRICS):
                for number, item in enumerate(shown):
                    _dots(axis, values_of(metric)(item), number + 0.3 * place, f"C{place}")
                    change = item.difference(metric) if values_of is _difference else None
                    if change is not None and math.isfinite(change.p):
                        ends = [number + 0.3 * place] * 2
                        axis.plot([change.low, change.high], ends, color=f"C{place}", alpha=0.5)
            axis.set_ylim(len(shown) - 0.4, -0.4)
            axis.set_yticks([number + 0.15 for number in range(len(shown))])
            axis.set_title(column)
            axis.set_xlabel(label)
            axis.grid(axis="x", alpha=0.3)
            axis.tick_params(labelleft=axis is line[0])
        line[0].set_yticklabels([item.entry.row for item in shown])
        for axis in line[1:]:
            axis.axvline(0.0, color="black", linewidth=0.8)
    for place, metric in enumerate(METRICS):
        axes[0][0].scatter([], [], s=12, color=f"C{place}", label=LABELS[metric])
    # Beside the title, where it hides no dot.
    figure.legend(title="a dot is a seed, a stroke their mean", ncols=2, fontsize="small")
    return figure


def _dots(axis: Any, values: Sequence[float], place: float, color: str) -> None:
    if values:
        axis.scatter(values, [place] * len(values), s=12, color=color, alpha=0.6)
        axis.scatter([sum(values) / len(values)], [place], s=120, marker="|", color=color)


def _curves(pyplot: Any, experiment: Experiment, items: Sequence[Measured]) -> Any:
    """Draw accuracies, differences to baselines and other figures against the axis.

    Every column of the table has its own lines of panels.
    """
    columns = _grouped(items, lambda entry: entry.column)
    panels = {HEADINGS.get(name, name): _figure(name) for name in (*METRICS, *experiment.figures)}
    if any(item.entry.baseline for item in items):
        for metric in METRICS:
            panels[f"{LABELS[metric]}, points above the baseline"] = _difference(metric)
    lines = math.ceil(len(panels) / PANELS_A_LINE)
    wide = math.ceil(len(panels) / lines)
    size = 4.5 * wide, 4.2 * lines * len(columns)
    figure, axes = pyplot.subplots(lines * len(columns), wide, figsize=size, squeeze=False)
    xs = [item.entry.x for item in items if item.entry.x is not None]
    finite = [x for x in xs if x and math.isfinite(x)]
    # What is off is right of the others.
    off = 2 * max(finite, default=1.0)
    label = f"{experiment.axis} (rightmost: off)" if math.inf in xs else experiment.axis
    for part, (column, shown) in enumerate(columns.items()):
        own = list(axes[part * lines : (part + 1) * lines].flat)
        curves = _grouped(shown, _curve)
        spare = own[len(panels) :]
        for axis in spare:
            axis.axis("off")
        for axis, (title, values_of) in zip(own, panels.items(), strict=False):
            for number, (name, series) in enumerate(curves.items()):
                points = [
                    (off if item.entry.x == math.inf else item.entry.x or 0.0, values)
                    for item in series
                    if (values := values_of(item))
                ]
                # A baseline may be the first entry, whatever its place on the axis.
                points.sort(key=lambda point: point[0])
                color = pyplot.get_cmap("tab20" if len(curves) > MOST_COLORS else "tab10")(number)
                for x, values in points:
                    axis.scatter([x] * len(values), values, s=12, color=[color], alpha=0.6)
                means = [sum(values) / len(values) for _, values in points]
                axis.plot([x for x, _ in points], means, color=color, label=name)
            if "above" in title:
                axis.axhline(0.0, color="black", linewidth=0.8)
            # Weights' norms and rates differ by orders of magnitude between optimisers.
            if min(axis.dataLim.intervaly) > 0 and 20 * axis.dataLim.y0 < axis.dataLim.y1:
                axis.set_yscale("log")
            ticks = sorted(set(finite))
            if 0 in xs:
                axis.set_xscale("symlog", linthresh=min(finite, default=1.0))
            elif ticks:
                axis.set_xscale("log")
                axis.set_xlim(ticks[0] / 1.15, (off if math.inf in xs else ticks[-1]) * 1.15)
            if len(ticks) <= MOST_TICKS:
                axis.set_xticks(ticks, _tick_labels(ticks), minor=False)
                axis.set_xticks([], minor=True)
            axis.set_xlabel(label)
            axis.set_title(title if len(columns) == 1 else f"{column}: {title}", fontsize="small")
            axis.grid(alpha=0.3)
        # In a free place, if there is one, or beside many curves, where it hides nothing.
        handles = own[0].get_legend_handles_labels()
        if spare:
            spare[0].legend(*handles, fontsize="small", loc="center")
        elif len(curves) > MOST_INSIDE:
            beside = {"loc": "center left", "bbox_to_anchor": (1.02, 0.5)}
            own[wide - 1].legend(*handles, fontsize="small", **beside)
        else:
            own[0].legend(*handles, fontsize="small")
    return figure


def _tick_labels(ticks: Sequence[float]) -> list[str]:
    """Return the labels of a logarithmic axis; one that would touch the label before it is lower.

    >>> _tick_labels([0.5, 1, 1.125, 2])
    ['0.5', '1', '\\n1.125', '2']
    """
    labels = [f"{x:,g}" for x in ticks]
    for place in range(1, len(ticks)):
        is_close = ticks[place] < CLOSE_TICKS * ticks[place - 1]
        if is_close and not labels[place - 1].startswith("\n"):
            labels[place] = f"\n{labels[place]}"
    return labels


def _figure(name: str) -> Values:
    return lambda item: item.values(name)


def _difference(metric: str) -> Values:
    return lambda item: item.differences(metric)


def _heat_maps(pyplot: Any, experiment: Experiment, items: Sequence[Measured]) -> Any:
    columns = _grouped(items, lambda entry: entry.curve or entry.column)
    figure, axes = _panels(pyplot, columns, 1, 5, 4.5)
    for axis, (column, shown) in zip(axes, columns.items(), strict=True):
        values = [item.values("linear_acc1") for item in shown]
        means = [sum(each) / len(each) for each in values]
        places = [(item.entry.x or 0.0, item.entry.y or 0.0) for item in shown]
        by_place = dict(zip(places, means, strict=True))
        xs, ys = (sorted(set(values)) for values in zip(*places, strict=True))
        grid = [[by_place.get((x, y), math.nan) for x in xs] for y in ys]
        image = axis.imshow(grid, aspect="auto", origin="lower")
        for (x, y), mean in by_place.items():
            place = xs.index(x), ys.index(y)
            color = "black" if image.norm(mean) > 0.5 else "white"
            axis.text(*place, f"{mean:.1f}", ha="center", va="center", color=color)
        axis.set_xticks(range(len(xs)), [f"{x:g}" for x in xs])
        axis.set_yticks(range(len(ys)), ["off" if math.isinf(y) else f"{y:.2g}" for y in ys])
        axis.set_xlabel(experiment.axis)
        axis.set_ylabel(experiment.other_axis)
        axis.set_title(f"{column}, linear probe")
        figure.colorbar(image, ax=axis, label="accuracy, %")
    return figure
