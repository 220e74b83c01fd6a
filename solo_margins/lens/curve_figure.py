"""Draws the figures of the margins paper's sections 4 and 5 for any margins.

python -m solo_margins.lens curves margins.angular=0.5 margins.subtractive=0.2 temperature=0.2
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from omegaconf import OmegaConf

from solo_margins.config import read
from solo_margins.files import complete_file, output_path
from solo_margins.lens import curves
from solo_margins.lens.curves import Series
from solo_margins.losses import Margins
from solo_margins.losses.checks import POSITIVE, UP_TO_ONE, Range, require_number
from solo_margins.losses.margins import FIELDS

ENDINGS = (".png", ".pdf", ".svg")
KEYS = (*(f"margins.{name}" for name in FIELDS), "temperature", "q", "degrees", "output")
STYLE: dict[Any, Any] = {"axes.grid": True, "grid.alpha": 0.3, "legend.frameon": False}
STYLE |= {"axes.spines.right": False, "axes.spines.top": False}
STYLE |= {"axes.titlesize": 11, "legend.fontsize": 9}
PLAIN, CHOSEN, SECOND = "#6b7280", "#c2410c", "#1d4ed8"
DASHED = {"color": PLAIN, "linestyle": "--"}
HEADING = {"fontsize": 13, "weight": "bold"}
ABOVE = 24  # points between a title and its plot, for the legend


@dataclass(frozen=True)
class CurveSettings:
    """The margins to draw, and the angle and probability at which to cut.

    Args:
        margins: the margins.
        temperature: τ > 0.
        q: the positive's probability without margins, in plots against the angle.
        degrees: the positive's angle in plots against the probability, in [0, 180].
        output: the image file; .png, .pdf or .svg.

    Raises:
        ValueError: a setting is out of its range.
    """

    margins: Margins = field(default_factory=Margins)
    temperature: float = curves.TEMPERATURE
    q: float = 0.5
    degrees: float = 60.0
    output: Path = Path("lens_curves.png")

    def __post_init__(self) -> None:
        require_number("temperature", self.temperature, POSITIVE)
        require_number("q", self.q, UP_TO_ONE)
        require_number("degrees", self.degrees, Range("a number in [0, 180]", high=180.0))


def parse(arguments: Sequence[str]) -> CurveSettings:
    """Return the settings from ``key=value`` arguments.

    Raises:
        ValueError: an argument is unknown or out of its range.

    Example:
        >>> parse(["margins.curvature=.inf", "q=0.25"]).q
        0.25
        >>> parse(["margins.angular=4"])
        Traceback (most recent call last):
        ...
        ValueError: margins.angular must be a number in [0, π], got 4
    """
    settings: dict[str, Any] = {}
    numbers = []
    for argument in arguments:
        key, is_setting, text = argument.partition("=")
        if not is_setting or key not in KEYS:
            keys = ", ".join(KEYS)
            raise ValueError(f"{argument!r} is not key=value with one of the keys {keys}.")
        if key == "output":
            settings[key] = output_path(text, ENDINGS)
        else:
            numbers.append(argument)
    cfg = OmegaConf.from_dotlist(numbers)
    settings["margins"] = read(cfg, "margins", Margins)
    settings.update({key: cfg[key] for key in ("temperature", "q", "degrees") if key in cfg})
    return CurveSettings(**settings)


def draw_curves(arguments: Sequence[str]) -> Path:
    """Draw the figure that ``key=value`` arguments describe, and return its path."""
    settings = parse(arguments)
    with matplotlib.rc_context(STYLE), complete_file(settings.output) as unfinished:
        _figure(settings).savefig(unfinished, dpi=110)
    return settings.output


def _figure(settings: CurveSettings) -> Any:
    figure: Any = Figure(figsize=(16, 12.2), layout="constrained")
    figure.get_layout_engine().set(wspace=0.05)
    rows = figure.subfigures(3, 1, height_ratios=(1, 1, 1.15), hspace=0.04)
    title = f"{curves.described(settings.margins)}   (τ = {settings.temperature:g})"
    figure.suptitle(title, fontsize=15, weight="bold")
    for row, draw in zip(rows, (_gradients, _factors, _families), strict=True):
        draw(row, settings)
    return figure


def _plot(
    axis: Any, title: str, ylabel: str, by_angle: bool, *lines: tuple[Series, dict[str, Any]]
) -> None:
    """Draw lines against the angle or the probability, with title and axis labels."""
    for series, look in lines:
        axis.plot(series.x.numpy(), series.y.numpy(), **{"color": CHOSEN, "linewidth": 2.4, **look})
    axis.set_title(title, pad=ABOVE)
    axis.set_ylabel(ylabel)
    if by_angle:
        axis.set(xlabel="angle θ of the positive, degrees", xlim=(0, 180))
        axis.set_xticks(range(0, 181, 30))
    else:
        axis.set(xlabel="probability q of the positive, without margins", xlim=(0, 1))


def _legend_above(axis: Any, **look: Any) -> None:
    layout = {"ncols": 2, "borderaxespad": 0.2, "columnspacing": 1.2, "handlelength": 1.8}
    axis.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), **layout, **look)


def _gradients(row: Any, settings: CurveSettings) -> None:
    row.suptitle("The gradient of a positive (Fig. 1 of the paper)", **HEADING)
    by_angle, by_probability, *maps = row.subplots(1, 4, width_ratios=(1, 1, 1.12, 1.12))
    tau, size = settings.temperature, "|∂L/∂θ|, 1/rad"
    at_q = f"gradient against angle, q = {settings.q:g}"
    at_angle = f"gradient against probability, θ = {settings.degrees:g}°"
    for margins, look, axis in (
        (Margins(), {**DASHED, "linewidth": 1.8, "label": "no margins"}, maps[0]),
        (settings.margins, {"label": "these margins"}, maps[1]),
    ):
        series = curves.gradient_by_angle(margins, settings.q, tau)
        _plot(by_angle, at_q, size, True, (series, look))
        series = curves.gradient_by_probability(margins, settings.degrees, tau)
        _plot(by_probability, at_angle, size, False, (series, look))
        gradient = curves.gradient_map(margins, tau)[2].numpy()
        mesh = axis.imshow(gradient, origin="lower", extent=(0, 180, 0, 1), aspect="auto")
        axis.grid(False)
        _plot(axis, f"gradient, {look['label']}", "probability q", True)
        row.colorbar(mesh, ax=axis, pad=0.02).set_label(size)
    for axis in (by_angle, by_probability):
        axis.set_ylim(bottom=0)
        _legend_above(axis)


def _factors(row: Any, settings: CurveSettings) -> None:
    row.suptitle("The factors that margins multiply gradients by (Fig. 2, Eq. 12)", **HEADING)
    weight, slope, probability, total = axes = row.subplots(1, 4)
    margins, tau, degrees = settings.margins, settings.temperature, settings.degrees
    by_angle = curves.weight_by_angle(margins)
    _plot(weight, "scale of positives, s · curve(θ)", "factor", True, (by_angle, {}))
    weight.set_ylim(0, 1.08 * max(1.0, margins.positive_scale))
    for axis, title, ratio in (
        (slope, "slope, sin(θ + m₁) / sin θ", curves.slope_ratio(margins)),
        (total, f"all together, q = {settings.q:g}", curves.total_ratio(margins, settings.q, tau)),
    ):
        _plot(axis, title, "", True, (ratio, {}))
        _cut_off_ends(axis, ratio)
    positive = curves.probability_ratio(margins, degrees, tau)
    negative = curves.probability_ratio(margins, degrees, tau, of_negatives=True)
    dashed = {"color": SECOND, "linestyle": (0, (4, 3)), "linewidth": 1.8}
    lines = (
        (positive, {"label": "positive: (1 − q′) / (1 − q)"}),
        (negative, {"label": "negatives: q′ⱼ / qⱼ", **dashed}),
    )
    _plot(probability, f"probability at θ = {degrees:g}°", "", False, *lines)
    _legend_above(probability, fontsize=8)
    largest = max(float(positive.y.max()), float(negative.y.max()))
    if largest > 20:
        probability.set_yscale("log")
        probability.yaxis.set_major_formatter("{x:g}")
    else:
        probability.set_ylim(0, 1.08 * max(1.0, largest))
    for axis in axes:
        axis.axhline(1.0, **DASHED, linewidth=1.4)
        if axis is not probability:
            look = {"ha": "right", "fontsize": 9, "color": PLAIN, "textcoords": "offset points"}
            position = {"xytext": (0, 3), "xycoords": ("axes fraction", "data")}
            axis.annotate("no margins", (0.99, 1.0), **position, **look)


def _cut_off_ends(axis: Any, series: Series) -> None:
    """Limit the axis to values away from the angles 0 and π, where a ratio diverges."""
    inner = series.y[(series.x >= 10.0) & (series.x <= 170.0)]
    inner = inner[inner.isfinite()]
    if len(inner) == 0:
        words = "without margins there is\nno gradient to multiply"
        axis.text(0.5, 0.5, words, ha="center", va="center", transform=axis.transAxes)
        return
    low, high = min(0.0, float(inner.min())), max(1.0, float(inner.max()))
    axis.set_ylim(low - (0.05 * (high - low) if low < 0 else 0.0), high + 0.08 * (high - low))


def _family(family: Mapping[float, Series], symbol: str, chosen: float, off: float) -> list[Any]:
    """Return the lines of a family of curves, the chosen one on top."""
    lines = []
    for number, (value, series) in enumerate(family.items()):
        colour = matplotlib.colormaps["viridis"](0.9 * number / (len(family) - 1))
        look = {"color": colour, "linewidth": 1.4, "alpha": 0.8}
        label = f"{symbol} = " + f"{value:.3g}".replace("inf", "∞") + ", off" * (value == off)
        if value == chosen:
            look, label = {"linewidth": 3.2, "zorder": 3}, f"{label} (chosen)"
        lines.append((series, {**look, "label": label}))
    return lines


def _families(row: Any, settings: CurveSettings) -> None:
    """Draw the effect of other values of curvature and attenuation."""
    margins = settings.margins
    by_angle, by_probability = row.subplots(1, 2)
    title = "Weight of a positive by its angle, for several curvatures c (Eq. 18)"
    family = _family(curves.weights_by_curvature(margins), "c", margins.curvature, math.inf)
    _plot(by_angle, title, "weight s · curve(θ)", True, *family)
    by_angle.set_ylim(0, 1.08 * margins.positive_scale)
    title = "Attenuation 1 / (1 − αq) by probability, for several α (Eq. 20, 21)"
    family = _family(curves.attenuations_by_strength(margins), "α", margins.attenuation, 0.0)
    if margins.subtractive > 0.0:
        alpha = -math.expm1(-margins.subtractive / settings.temperature)
        label = f"m₂ = {margins.subtractive:g} acts as α = {alpha:.3g} (Eq. 14)"
        look = {"color": SECOND, "linestyle": ":", "linewidth": 2.6, "label": label}
        equivalent = replace(margins, attenuation=alpha)
        family.append((curves.attenuation_by_probability(equivalent), look))
    _plot(by_probability, title, "factor", False, *family)
    # With margins on, the q of Eq. 20 is that with margins.
    by_probability.set(xlabel="probability q of the positive", yscale="log", ylim=(0.9, 100))
    ticks = [1, 2, 5, 10, 20, 50, 100]
    by_probability.set_yticks(ticks, [str(tick) for tick in ticks])
    by_probability.minorticks_off()
    for axis in (by_angle, by_probability):
        axis.set_title(axis.get_title(), pad=6)
        axis.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
