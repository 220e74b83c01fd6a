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
            is_slider = plot.get("of") == "histograms"
            figure = _distributions(runs) if is_slider else _over_runs(runs, plot)
            if figure is not None:
                shown.setdefault(section, {})[title] = {**plot, "figure": figure}
    return shown


def thinned(items: Sequence[Any], most: int) -> list[Any]:
    """Return at most ``most`` items, evenly spread, including the first and the last.

    Example:
        >>> thinned(range(10), 4)
        [0, 3, 6, 9]
    """
    if len(items) <= most:
        return list(items)
    return [items[round(number * (len(items) - 1) / (most - 1))] for number in range(most)]


def _line(run: ReportedRun, points: Iterable[Point], is_second: bool = False) -> go.Scatter:
    """Return a line in the colour of its run; a second line of the run is dotted."""
    x, y = zip(*thinned(list(points), MOST_POINTS), strict=True)
    label = run.label if len(run.label) <= 60 else f"{run.label[:59]}…"
    # Labels of plotly are HTML.
    line = go.Scatter(x=x, y=y, name=html.escape(label, quote=False), hovertemplate="%{y:.4g}")
    line.line = {"color": run.colour, "dash": "dot" if is_second else "solid"}
    mode = "lines+markers" if len(x) <= FEW_POINTS else "lines"
    return line.update(mode=mode, legendgroup=str(run.folder), showlegend=not is_second)


def _curve(name: str, margins: Margins | None, temperature: float) -> list[Point]:
    """Return a curve of margins; those without a temperature have no negatives."""
    if margins is None or (name == "attenuation" and not temperature):
        return []
    x, y = ANGLES.rad2deg(), margins.angle_weight(ANGLES)
    if name == "gradient":
        # Without negatives q has no meaning.
        spec = ContrastSpec(temperature or 1.0, margins, float(temperature > 0))
        y = curves.positive_gradient(spec, ANGLES, 0.5)
    elif name == "attenuation":
        x, y = PROBABILITIES, margins.attenuation_factor(1.0 - PROBABILITIES)
    return list(zip(x.tolist(), y.tolist(), strict=True))


def _points(run: ReportedRun, of: str, name: str) -> list[Point]:
    """Return what a plot shows of a run."""
    if of == "accuracies":
        return sorted(run.accuracies.get(name, {}).items())
    if of == "curves":
        return _curve(name, run.margins, run.temperature)
    seen = run.lens.observations
    values = [(one.step, one.scalars.get(name, one.margins.get(name))) for one in seen]
    return [(step, value) for step, value in values if isinstance(value, (int, float))]


def _over_runs(runs: Sequence[ReportedRun], plot: dict[str, Any]) -> go.Figure | None:
    """Return lines of each run as the YAML file describes them, or None without data."""
    of, quantities, factor = plot.get("of", "scalars"), plot["quantities"], plot.get("factor", 1.0)
    lines, temperatures = [], set()
    for name, run in product(quantities, runs):
        points = [(place, factor * value) for place, value in _points(run, of, name)]
        if any(math.isfinite(value) for _, value in points):
            lines.append(_line(run, points, is_second=name != quantities[0]))
            temperatures.add(run.temperature)
    if not lines or (of == "schedules" and all(len(set(line.y)) == 1 for line in lines)):
        return None  # nothing is known, or nothing is scheduled
    if of == "curves":
        # Lines of equal settings coincide: the lower ones are thicker and stay visible.
        for number, line in enumerate(lines):
            line.line.width = 2 * (len(lines) - number)
        if len(temperatures) == 1:
            places, plain = zip(*_curve(quantities[0], Margins(), *temperatures), strict=True)
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
    titles = [title for title, *_ in panels]
    figure = make_subplots(rows=len(panels), subplot_titles=titles, vertical_spacing=0.12)
    steps = thinned(sorted({seen.step for seen in observations}), MOST_STEPS)
    shares: dict[int, list[list[float]]] = {step: [] for step in steps}
    for row, (_, quantities, end, unit) in enumerate(panels, start=1):
        figure.update_xaxes(range=[0, end], row=row, col=1)
        for name, run in product(quantities, runs):
            seen = [each for each in run.lens.observations if name in each.histograms]
            if not seen:
                continue
            for step in steps:
                earlier = [each for each in seen if each.step <= step]
                shares[step].append(_shares(earlier[-1].histograms[name]) if earlier else [])
            edges = [unit * edge for edge in seen[-1].histograms[name].edges]
            line = _line(run, zip(edges, shares[steps[-1]][-1], strict=True), name != quantities[0])
            fill = f"rgba{(*hex_to_rgb(run.colour), 0.2)}"
            line.update(mode="lines", line_shape="hv", fillcolor=fill)
            line.update(fill="tozeroy" if line.showlegend else "none")
            line.showlegend = line.showlegend and row == 1
            figure.add_trace(line, row=row, col=1)
    for run in runs if "distance" in names else ():
        if band := run.band():
            shade = {"fillcolor": run.colour, "opacity": 0.12, "line_width": 0}
            figure.add_vrect(*band, row=len(panels), col=1, **shade)
    figure.update_yaxes(title="share, %", rangemode="tozero")
    restyles = ((str(step), [{"y": of_step}]) for step, of_step in shares.items())
    moves = [{"label": label, "method": "restyle", "args": args} for label, args in restyles]
    slider = {"steps": moves, "active": len(moves) - 1, "currentvalue": {"prefix": "step "}}
    return figure.update_layout(template="none", height=230 * len(panels) + 110, sliders=[slider])


def _shares(histogram: Histogram) -> list[float]:
    """Return the share of each bin in percent, the last one twice to end the line."""
    shares = [round(100.0 * count / max(1, sum(histogram.counts)), 3) for count in histogram.counts]
    return [*shares, shares[-1]]
