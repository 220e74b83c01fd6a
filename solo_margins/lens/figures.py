"""The plots of a report as plotly figures; the page chooses their theme."""

import html
import math
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from omegaconf import OmegaConf
from plotly.colors import hex_to_rgb
from plotly.subplots import make_subplots

from solo_margins.lens import curves
from solo_margins.lens.records import Histogram
from solo_margins.lens.runs import ReportedRun
from solo_margins.losses import Margins
from solo_margins.losses.margins import ContrastSpec

MOST_POINTS = 1000  # of a line; a screen shows no more
MOST_STEPS = 120  # of the slider
FEW_POINTS = 25  # of a line with markers
LONGEST_LABEL = 60
Point = tuple[float, float]
ANGLES, PROBABILITIES = curves.ANGLES[::2], curves.PROBABILITIES[:-1:2]

# Plots of histograms: title, quantities, end of the axis, factor of its unit.
HISTOGRAMS = (
    ("angles of pairs, degrees", ("positive_angle", "negative_angle"), 180, 180 / math.pi),
    ("probability q of the positives", ("q",), 1, 1.0),
    ("pairwise distances (1 − cos θ) / 2", ("distance",), 1, 1.0),
)


def sections(runs: Sequence[ReportedRun]) -> dict[str, dict[str, Any]]:
    """Return the plots that have data, each with its ``figure``, by section and title."""
    file = Path(__file__).with_name("report_plots.yaml")
    listed: Any = OmegaConf.to_container(OmegaConf.load(file))
    shown: dict[str, dict[str, Any]] = {}
    for section, plots in listed.items():
        for title, plot in plots.items():
            if plot.get("of") == "histograms":
                figure = _distributions(runs)
            else:
                figure = _over_runs(runs, plot)
            if figure is not None:
                about = plot["about"].replace("{of_rows}", of_rows(runs))
                shown.setdefault(section, {})[title] = {"about": about, "figure": figure}
    return shown


def of_rows(runs: Sequence[ReportedRun]) -> str:
    """Return of how many rows of features the spectra are, as text: `` of 512 rows``."""
    numbers: set[float] = set()
    for run in runs:
        for seen in run.lens.observations:
            if "rankme_rows" in seen.scalars:
                numbers.add(seen.scalars["rankme_rows"])
    if not numbers:
        return ""
    if len(numbers) == 1:
        return f" of {numbers.pop():.0f} rows"
    return f" of {min(numbers):.0f} to {max(numbers):.0f} rows"


def thinned(items: Sequence[Any], most: int) -> list[Any]:
    """Return at most ``most`` items, evenly spread, including the first and the last.

    Examples:
        >>> thinned(range(10), 4)
        [0, 3, 6, 9]
    """
    if len(items) <= most:
        return list(items)
    step = (len(items) - 1) / (most - 1)
    return [items[round(number * step)] for number in range(most)]


def _line(run: ReportedRun, points: Iterable[Point], is_second: bool = False) -> go.Scatter:
    """Return a line in the colour of its run; a second line of the run is dotted."""
    x, y = zip(*thinned(list(points), MOST_POINTS), strict=True)
    label = run.label
    if len(label) > LONGEST_LABEL:
        label = f"{label[: LONGEST_LABEL - 1]}…"
    return go.Scatter(
        x=x,
        y=y,
        # Labels of plotly are HTML.
        name=html.escape(label, quote=False),
        line={"color": run.colour, "dash": "dot" if is_second else "solid"},
        mode="lines+markers" if len(x) <= FEW_POINTS else "lines",
        legendgroup=str(run.place),
        hovertemplate="%{y:.4g}",
    )


def _curve(name: str, margins: Margins | None, temperature: float) -> list[Point]:
    """Return a curve of margins; those without a temperature have no negatives."""
    if margins is None or (name == "attenuation" and not temperature):
        return []
    if name == "attenuation":
        x = PROBABILITIES
        y = margins.attenuation_factor(1.0 - PROBABILITIES)
    elif name == "gradient":
        x = ANGLES.rad2deg()
        # Without negatives q has no meaning.
        spec = ContrastSpec(1.0, margins, negatives_weight=0.0)
        if temperature:
            spec = ContrastSpec(temperature, margins)
        y = curves.positive_gradient(spec, ANGLES, 0.5)
    else:
        x = ANGLES.rad2deg()
        y = margins.angle_weight(ANGLES)
    return list(zip(x.tolist(), y.tolist(), strict=True))


def _points(run: ReportedRun, of: str, name: str) -> list[Point]:
    """Return what a plot shows of a run."""
    if of == "accuracies":
        return sorted(run.accuracies.get(name, {}).items())
    if of == "curves":
        return _curve(name, run.margins, run.temperature)
    points: list[Point] = []
    for seen in run.lens.observations:
        value = seen.scalars.get(name, seen.margins.get(name))
        if isinstance(value, (int, float)):
            points.append((seen.step, value))
    return points


def _over_runs(runs: Sequence[ReportedRun], plot: dict[str, Any]) -> go.Figure | None:
    """Return lines of each run as the YAML file describes them, or None without data."""
    of = plot.get("of", "scalars")
    quantities = plot["quantities"]
    factor = plot.get("factor", 1.0)
    lines = []
    temperatures = set()
    for name, run in product(quantities, runs):
        points = [(place, factor * value) for place, value in _points(run, of, name)]
        if any(math.isfinite(value) for _, value in points):
            lines.append(_line(run, points, is_second=name != quantities[0]))
            temperatures.add(run.temperature)
    if not lines:
        return None
    if of == "schedules" and all(len(set(line.y)) == 1 for line in lines):
        return None  # nothing is scheduled
    if of == "curves":
        # Lines of equal settings coincide: the lower ones are thicker and stay visible.
        for number, line in enumerate(lines):
            line.line.width = 2 * (len(lines) - number)
        if len(temperatures) == 1:
            places, plain = zip(*_curve(quantities[0], Margins(), temperatures.pop()), strict=True)
            grey = {"color": "grey", "dash": "dash"}
            lines.append(go.Scatter(x=places, y=plain, name="no margins", line=grey))
    figure = go.Figure(lines, {"template": "none"})
    figure.update_xaxes(title=plot.get("x", "optimiser step"))
    return figure.update_yaxes(title=plot["unit"], **plot.get("axis", {}))


def _distributions(runs: Sequence[ReportedRun]) -> go.Figure | None:
    """Return the histograms, with a slider over the steps of all runs."""
    observations = [seen for run in runs for seen in run.lens.observations]
    names = {name for seen in observations for name in seen.histograms}
    panels = [panel for panel in HISTOGRAMS if names.intersection(panel[1])]
    if not panels:
        return None
    figure = make_subplots(rows=len(panels), vertical_spacing=0.12)
    steps = thinned(sorted({seen.step for seen in observations}), MOST_STEPS)
    shares: dict[int, list[list[float]]] = {step: [] for step in steps}
    for row, (title, quantities, end, unit) in enumerate(panels, start=1):
        figure.update_xaxes(title=title, range=[0, end], row=row, col=1)
        for name, run in product(quantities, runs):
            seen = [each for each in run.lens.observations if name in each.histograms]
            if not seen:
                continue
            for step in steps:
                earlier = [each for each in seen if each.step <= step]
                shares[step].append(_shares(earlier[-1].histograms[name]) if earlier else [])
            is_second = name != quantities[0]
            edges = [unit * edge for edge in seen[-1].histograms[name].edges]
            line = _line(run, zip(edges, shares[steps[-1]][-1], strict=True), is_second)
            line.mode = "lines"
            line.line.shape = "hv"
            line.fill = "none" if is_second else "tozeroy"
            line.fillcolor = f"rgba{(*hex_to_rgb(run.colour), 0.2)}"
            figure.add_trace(line, row=row, col=1)
    if "distance" in names:
        _shade_bands(figure, runs, row=len(panels))
    figure.update_yaxes(title="share, %", rangemode="tozero")
    moves = []
    for step, of_step in shares.items():
        moves.append({"label": str(step), "method": "restyle", "args": [{"y": of_step}]})
    slider = {
        "steps": moves,
        "active": len(moves) - 1,
        "currentvalue": {"prefix": "step "},
        "pad": {"t": 40},
    }
    return figure.update_layout(template="none", height=230 * len(panels) + 110, sliders=[slider])


def _shade_bands(figure: go.Figure, runs: Sequence[ReportedRun], row: int) -> None:
    """Shade the polarization band of each run that has one."""
    for run in runs:
        band = run.band()
        if band is not None:
            figure.add_vrect(
                *band, row=row, col=1, fillcolor=run.colour, opacity=0.12, line_width=0
            )


def _shares(histogram: Histogram) -> list[float]:
    """Return the share of each bin in percent, the last one twice to end the line."""
    total = max(1, sum(histogram.counts))
    shares = [round(100.0 * count / total, 3) for count in histogram.counts]
    return [*shares, shares[-1]]
