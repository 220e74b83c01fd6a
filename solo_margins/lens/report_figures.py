"""Plots of a report as data for plotly: lines over time, histograms over time, curves.

Colours are left to the page, which knows whether it is light, dark or on paper.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from solo_margins.lens.curves import Series
from solo_margins.lens.records import Histogram
from solo_margins.lens.report_runs import ReportedRun

MOST_POINTS = 1000
"""Of a line; more than that cannot be told apart on a screen."""
MOST_FRAMES = 120
"""Of a histogram over time, for each run."""
FEW_POINTS = 25
"""Up to here every point of a plot's lines is marked."""
NO_RUN = -1
"""The number of the run for lines that belong to none."""

Legend = tuple[str, str]
"""A dash of plotly, and what lines of this dash show."""


@dataclass
class Figure:
    """One plot with its words.

    Attributes:
        title: what it shows.
        about: how to read it, in a sentence or two.
        data: traces of plotly; ``meta.run`` is the place of the run that a trace belongs to.
        layout: layout of plotly, without colours and size.
        legend: dashes that the plot uses, where it uses more than one.
        quantities: names of what it shows of an observation's numbers.
        is_wide: whether it takes the whole width of the page.
        is_timed: whether the slider moves it; traces then have ``meta.frames`` instead of x and y.
    """

    title: str
    about: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    legend: list[Legend] = field(default_factory=list)
    quantities: list[str] = field(default_factory=list)
    is_wide: bool = False
    is_timed: bool = False

    @property
    def runs(self) -> list[int]:
        """Places of the runs that the plot shows."""
        return sorted({trace["meta"]["run"] for trace in self.data} - {NO_RUN})


@dataclass(frozen=True)
class Quantity:
    """A number that the lens saw at every observation, and how a plot shows it."""

    name: str
    means: str = ""
    dash: str = "solid"
    factor: float = 1.0


def plain_label(text: str) -> str:
    """Return text as plotly shows it literally: its labels are a kind of HTML."""
    return html.escape(text if len(text) <= 60 else f"{text[:59]}…", quote=False)


def finite(value: float) -> float | None:
    """Return a number as a browser can read it; what is no number is a gap in a line."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def thinned(items: Sequence[Any], most: int) -> list[Any]:
    """Return at most so many items, evenly spread, the first and the last among them.

    Example:
        >>> thinned(range(10), 4)
        [0, 3, 6, 9]
    """
    if len(items) <= most:
        return list(items)
    return [items[round(place * (len(items) - 1) / (most - 1))] for place in range(most)]


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Return an axis with a title."""
    return {"title": {"text": title}, "automargin": True, **more}


def _trace(
    run: int, name: str, x: Sequence[Any], y: Sequence[Any], dash: str = "solid", **more: Any
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": list(x),
        "y": list(y),
        "line": {"dash": dash, "width": 2},
        "marker": {"size": 5},
        "hovertemplate": "%{y:.4g}",
        "meta": {"run": run},
        **more,
    }


def _marked(data: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mark the points of all lines if none has many: a single one would not be seen."""
    few = max((len(trace["x"]) for trace in data), default=0) <= FEW_POINTS
    for trace in data:
        if few or len(trace["x"]) == 1:
            trace["mode"] = "lines+markers"
    return data


def _name(run: ReportedRun, means: str) -> str:
    return plain_label(run.label) + (f", {means}" if means else "")


def over_steps(
    runs: Sequence[ReportedRun],
    title: str,
    about: str,
    quantities: Sequence[Quantity],
    unit: str,
    y: Mapping[str, Any] | None = None,
) -> Figure | None:
    """Return a plot of quantities against the optimiser step; None where no run has any of them."""
    data, legend = [], []
    for quantity in quantities:
        for place, run in enumerate(runs):
            seen = [each for each in run.lens.observations if quantity.name in each.scalars]
            if not any(math.isfinite(each.scalars[quantity.name]) for each in seen):
                continue
            seen = thinned(seen, MOST_POINTS)
            steps = [each.step for each in seen]
            values = [finite(quantity.factor * each.scalars[quantity.name]) for each in seen]
            data.append(_trace(place, _name(run, quantity.means), steps, values, quantity.dash))
            if (quantity.dash, quantity.means) not in legend and quantity.means:
                legend.append((quantity.dash, quantity.means))
    if not data:
        return None
    layout = {"xaxis": axis("optimiser step"), "yaxis": axis(plain_label(unit), **(y or {}))}
    return Figure(title, about, _marked(data), layout, legend, [each.name for each in quantities])


def margins_over_steps(runs: Sequence[ReportedRun], name: str, title: str) -> Figure | None:
    """Return a plot of a field of the margins; None where no run has a schedule for it."""
    data = []
    is_scheduled = False
    for place, run in enumerate(runs):
        seen = [
            (each.step, float(each.margins[name]))
            for each in run.lens.observations
            if isinstance(each.margins.get(name), (int, float))
        ]
        is_scheduled |= len({value for _, value in seen}) > 1
        seen = thinned(seen, MOST_POINTS)
        values = [finite(value) for _, value in seen]
        if any(value is not None for value in values):
            data.append(_trace(place, _name(run, ""), [step for step, _ in seen], values))
    if not is_scheduled:
        return None
    layout = {"xaxis": axis("optimiser step"), "yaxis": axis(plain_label(title))}
    about = "Scheduled: its value at every observation."
    return Figure(title[:1].upper() + title[1:], about, _marked(data), layout)


def accuracies(runs: Sequence[ReportedRun], column: str, name: str) -> Figure | None:
    """Return a plot of a column of the runs' logs against the epoch; None where it is in none."""
    data = []
    for place, run in enumerate(runs):
        values = sorted(run.accuracies.get(column, {}).items())
        if values:
            epochs = [epoch for epoch, _ in values]
            found = [finite(value) for _, value in values]
            data.append(_trace(place, _name(run, ""), epochs, found))
    if not data:
        return None
    layout = {"xaxis": axis("epoch"), "yaxis": axis("accuracy, %")}
    title, about = f"Validation accuracy, {name}", f"Column {column} of the logs."
    return Figure(title, about, _marked(data), layout)


def histograms(
    runs: Sequence[ReportedRun],
    title: str,
    about: str,
    quantities: Sequence[Quantity],
    x_title: str,
    unit: float,
    unit_name: str,
    x_range: tuple[float, float],
) -> Figure | None:
    """Return histograms that the slider moves through time; None where no run has any of them.

    Args:
        runs: the runs.
        title: of the plot.
        about: how to read it.
        quantities: which histograms; ``factor`` turns them into the unit of the axis.
        x_title: of the axis.
        unit: width that shares are given for, on the axis.
        unit_name: that width in words.
        x_range: of the axis.
    """
    data, legend = [], []
    for quantity in quantities:
        for place, run in enumerate(runs):
            seen = [
                (each.step, each.histograms[quantity.name])
                for each in run.lens.observations
                if quantity.name in each.histograms and each.histograms[quantity.name].total
            ]
            if not seen:
                continue
            frames = [
                {"step": step, **_density(found, quantity.factor, unit)}
                for step, found in thinned(seen, MOST_FRAMES)
            ]
            trace = _trace(place, _name(run, quantity.means), [], [], quantity.dash)
            trace["line"]["shape"] = "hv"
            if quantity.dash == "solid":
                trace["fill"] = "tozeroy"
            trace["meta"]["frames"] = frames
            data.append(trace)
            if (quantity.dash, quantity.means) not in legend and quantity.means:
                legend.append((quantity.dash, quantity.means))
    if not data:
        return None
    layout = {
        "xaxis": axis(x_title, range=list(x_range)),
        "yaxis": axis(f"share, % per {unit_name}", rangemode="tozero"),
    }
    return Figure(title, about, data, layout, legend, is_timed=True)


def _density(found: Histogram, factor: float, unit: float) -> dict[str, Any]:
    width = factor * (found.high - found.low) / len(found.counts)
    share = 100.0 * unit / (found.total * width)
    return {
        "low": finite(factor * found.low),
        "high": finite(factor * found.high),
        "y": [finite(share * count) for count in found.counts],
    }


def with_bands(figure: Figure | None, runs: Sequence[ReportedRun]) -> Figure | None:
    """Shade the distances that runs penalise in a plot of distances."""
    if figure is None:
        return None
    by_band: dict[tuple[float, float], list[str]] = {}
    for run in runs:
        band = run.band()
        if band is not None:
            by_band.setdefault(band, []).append(run.label)
    figure.layout["shapes"] = [
        {
            "type": "rect",
            "xref": "x",
            "yref": "paper",
            "x0": lower,
            "x1": upper,
            "y0": 0,
            "y1": 1,
            "layer": "below",
            "line": {"width": 1, "dash": "dot"},
        }
        for lower, upper in by_band
    ]
    if by_band:
        figure.about += " Shaded: the band that polarization empties, " + "; ".join(
            f"{lower:g} to {upper:g}" + ("" if len(by_band) == 1 else f" ({', '.join(names)})")
            for (lower, upper), names in by_band.items()
        )
        figure.about += "."
    return figure


def curves_of_settings(
    runs: Sequence[ReportedRun],
    title: str,
    about: str,
    curve: Callable[[ReportedRun], Series | None],
    x_title: str,
    y: Mapping[str, Any],
    plain: Series | None = None,
) -> Figure | None:
    """Return a plot of what each run's settings do; None where no run has such a curve.

    Args:
        runs: the runs.
        title: of the plot.
        about: how to read it.
        curve: a run to its curve, None where it has none.
        x_title: of the axis.
        y: the other axis.
        plain: the curve without margins.
    """
    data = []
    found = [(place, curve(run)) for place, run in enumerate(runs)]
    for place, series in found:
        if series is not None:
            name = _name(runs[place], "")
            trace = _trace(place, name, _rounded(series.x), _rounded(series.y))
            # The same settings give the same line: those below stay visible at its sides.
            trace["line"]["width"] = 2 + 4 * (len(runs) - 1 - place) / max(1, len(runs) - 1)
            trace["line"]["simplify"] = False
            data.append(trace)
    if not data:
        return None
    legend = []
    if plain is not None:
        data.append(_trace(NO_RUN, "no margins", _rounded(plain.x), _rounded(plain.y), "dash"))
        legend = [("dash", "no margins")]
    layout = {"xaxis": axis(x_title), "yaxis": dict(y)}
    return Figure(title, about, data, layout, legend)


def _rounded(values: Any) -> list[float | None]:
    return [finite(value) for value in values.tolist()]
