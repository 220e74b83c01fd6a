"""The plots of a report as plotly figures; the page chooses their theme."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from omegaconf import OmegaConf
from plotly.colors import hex_to_rgb
from plotly.subplots import make_subplots
from torch import Tensor

from solo_margins.lens import curves
from solo_margins.lens.logged_metrics import ACCURACIES
from solo_margins.lens.records import HISTOGRAMS, Histogram
from solo_margins.lens.runs import ReportedRun
from solo_margins.losses import Margins

MOST_POINTS = 1000  # of a line; a screen shows no more
MOST_STEPS = 120  # of the slider
FEW_POINTS = 25  # of a line with markers
ANGLES, PROBABILITIES = curves.ANGLES[::2], curves.PROBABILITIES[:-1:2]
# What a curve is drawn against, and its values for margins and a temperature.
CURVES: dict[str, tuple[Tensor, Callable[[Margins, float], Tensor]]] = {
    "weight": (ANGLES.rad2deg(), lambda margins, tau: margins.angle_weight(ANGLES)),
    "gradient": (
        ANGLES.rad2deg(),
        # Without a temperature there are no negatives, and q has no meaning.
        lambda margins, tau: curves.positive_gradient(
            margins, ANGLES, 0.5, tau or 1.0, negatives_weight=float(tau > 0)
        ),
    ),
    "attenuation": (
        PROBABILITIES,
        lambda margins, tau: margins.attenuation_factor(1.0 - PROBABILITIES),
    ),
}


@dataclass(frozen=True)
class Plot:
    """A figure with its title and an explanation."""

    title: str
    about: str
    figure: go.Figure


def sections(runs: Sequence[ReportedRun]) -> dict[str, list[Plot]]:
    """Return the plots that have data, by the titles of their sections."""
    file = Path(__file__).with_name("report_plots.yaml")
    listed: Any = OmegaConf.to_container(OmegaConf.load(file))
    plots = {"Accuracy": [_accuracy(runs, column) for column in ACCURACIES]}
    plots["Distributions over time"] = [_distributions(runs)]
    for section, of_section in listed.items():
        plots[section] = [
            (_margin_curve if "curve" in plot else _over_steps)(runs, title, **plot)
            for title, plot in of_section.items()
        ]
    shown = {section: [plot for plot in some if plot] for section, some in plots.items()}
    return {section: some for section, some in shown.items() if some}


def plain_label(text: str) -> str:
    """Return text escaped for plotly, whose labels are HTML."""
    return html.escape(text if len(text) <= 60 else f"{text[:59]}…", quote=False)


def thinned(items: Sequence[Any], most: int) -> list[Any]:
    """Return at most ``most`` items, evenly spread, including the first and the last.

    Example:
        >>> thinned(range(10), 4)
        [0, 3, 6, 9]
    """
    if len(items) <= most:
        return list(items)
    return [items[round(number * (len(items) - 1) / (most - 1))] for number in range(most)]


def _line(
    run: ReportedRun,
    points: Iterable[tuple[float, float]],
    is_second: bool = False,
    width: float = 2,
) -> go.Scatter:
    """Return a line in the colour of its run; a second line of the run is dotted."""
    x, y = zip(*thinned(list(points), MOST_POINTS), strict=True)
    return go.Scatter(
        x=x,
        y=y,
        name=plain_label(run.label),
        legendgroup=str(run.folder),
        showlegend=not is_second,
        line={"color": run.colour, "dash": "dot" if is_second else "solid", "width": width},
        mode="lines+markers" if len(x) <= FEW_POINTS else "lines",
        hovertemplate="%{y:.4g}",
    )


def _plot(title: str, about: str, lines: Any, x: str, y: str, **axis: Any) -> Plot | None:
    """Return a plot of lines, or None without lines."""
    if not lines:
        return None
    figure = go.Figure(lines, {"template": "none"})
    figure.update_xaxes(title=x)
    figure.update_yaxes(title=y, **axis)
    return Plot(title, about, figure)


def _accuracy(runs: Sequence[ReportedRun], column: str) -> Plot | None:
    logged = [(run, run.accuracies[column]) for run in runs if run.accuracies.get(column)]
    lines = [_line(run, sorted(values.items())) for run, values in logged]
    title, about = f"Validation accuracy, {ACCURACIES[column]}", f"Column {column} of the logs."
    return _plot(title, about, lines, "epoch", "accuracy, %")


def _over_steps(
    runs: Sequence[ReportedRun],
    title: str,
    quantities: Sequence[str],
    unit: str,
    about: str = "",
    factor: float = 1.0,
    axis: dict[str, Any] | None = None,
    margin: bool = False,
) -> Plot | None:
    """Return a plot of quantities over steps; the arguments are those of the YAML file."""
    part = "margins" if margin else "scalars"
    lines = []
    for name in quantities:
        for run in runs:
            values = [(seen.step, getattr(seen, part).get(name)) for seen in run.lens.observations]
            points = [(step, factor * y) for step, y in values if isinstance(y, (int, float))]
            if any(math.isfinite(y) for _, y in points):
                lines.append(_line(run, points, is_second=name != quantities[0]))
    if margin and all(len(set(line.y)) == 1 for line in lines):
        return None  # it is not scheduled
    return _plot(title, about, lines, "optimiser step", unit, **(axis or {}))


def _distributions(runs: Sequence[ReportedRun]) -> Plot | None:
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
    about = "Each run shows its last observation up to the slider's step. Dotted: negatives."
    for run in runs if "distance" in names else ():
        if band := run.band():
            shade = {"fillcolor": run.colour, "opacity": 0.12, "line_width": 0}
            figure.add_vrect(*band, row=len(panels), col=1, **shade)
            about += f" Shaded: the polarization band, {band[0]:g} to {band[1]:g}."
    figure.update_yaxes(title="share, %", rangemode="tozero")
    moves = [
        {"label": str(step), "method": "restyle", "args": [{"y": of_step}]}
        for step, of_step in shares.items()
    ]
    slider = {"steps": moves, "active": len(moves) - 1, "currentvalue": {"prefix": "step "}}
    figure.update_layout(template="none", height=230 * len(panels) + 110, sliders=[slider])
    return Plot("Angles, probabilities and distances", about, figure)


def _shares(histogram: Histogram) -> list[float]:
    """Return the share of each bin in percent, the last one twice to end the line."""
    shares = [round(100.0 * count / max(1, histogram.total), 3) for count in histogram.counts]
    return [*shares, shares[-1]]


def _margin_curve(
    runs: Sequence[ReportedRun], title: str, curve: str, x: str, unit: str, about: str
) -> Plot | None:
    """Return a curve of each run's margins; the arguments are those of the YAML file."""
    known = [(run, run.margins, run.number("temperature") or 0.0) for run in runs if run.margins]
    known = [one for one in known if one[2] or curve != "attenuation"]
    places, effect = CURVES[curve]
    lines = []
    for number, (run, margins, tau) in enumerate(known):
        points = zip(places.tolist(), effect(margins, tau).tolist(), strict=True)
        # Lines of equal settings coincide: the lower ones are thicker and stay visible.
        lines.append(_line(run, points, width=2 * (len(known) - number)))
    if len({tau for _, _, tau in known}) == 1:
        plain = effect(Margins(), known[0][2]).tolist()
        grey = {"color": "grey", "dash": "dash"}
        lines.append(go.Scatter(x=lines[0].x, y=plain, name="no margins", line=grey))
    return _plot(title, about, lines, x, unit, rangemode="tozero")
