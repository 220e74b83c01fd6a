"""Draws the figures of the margins paper's sections 4 and 5 for any margins.

python -m solo_margins.lens curves margins.angular=0.5 margins.subtractive=0.2 temperature=0.2
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import torch
from matplotlib.figure import Figure
from omegaconf import OmegaConf
from torch import Tensor

from solo_margins.config import read
from solo_margins.files import complete_file, output_path
from solo_margins.lens import curves
from solo_margins.losses import Margins
from solo_margins.losses.checks import POSITIVE, UP_TO_ONE, Range, require_number
from solo_margins.losses.margins import FIELDS

ENDINGS = (".png", ".pdf", ".svg")
KEYS = (*(f"margins.{name}" for name in FIELDS), "temperature", "q", "degrees", "output")
# Those of the margins paper (§5.3).
CURVATURES = (1 / 3, 0.5, 0.7, 1.0, 1.5, 2.5, 5.0, math.inf)
ATTENUATIONS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
STYLE: dict[Any, Any] = {"axes.grid": True, "grid.alpha": 0.3, "legend.fontsize": 9}
PLAIN, CHOSEN, SECOND = "#6b7280", "#c2410c", "#1d4ed8"
WITHOUT = {"color": PLAIN, "linestyle": "--", "linewidth": 1.8, "label": "no margins"}
WITH = {"color": CHOSEN, "linewidth": 2.4, "label": "these margins"}
HEADING = {"fontsize": 13, "weight": "bold"}
DEGREES, BY_ANGLE = curves.ANGLES.rad2deg(), "angle θ of the positive, degrees"
BY_PROBABILITY = "probability q of the positive, without margins"

# What is drawn against angles or probabilities, and how the line looks.
Line = tuple[Tensor, dict[str, Any]]


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
    temperature: float = 0.2
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
    cfg: Any = OmegaConf.from_dotlist(numbers)
    return CurveSettings(**{**settings, **cfg, "margins": read(cfg, "margins", Margins)})


def draw_curves(arguments: Sequence[str]) -> Path:
    """Draw the figure that ``key=value`` arguments describe, and return its path."""
    settings = parse(arguments)
    with matplotlib.rc_context(STYLE), complete_file(settings.output) as unfinished:
        figure: Any = Figure(figsize=(16, 12.2), layout="constrained")
        title = f"{curves.described(settings.margins)}   (τ = {settings.temperature:g})"
        figure.suptitle(title, fontsize=15, weight="bold")
        rows = figure.subfigures(3, 1, height_ratios=(1, 1, 1.15), hspace=0.04)
        for row, draw in zip(rows, (_gradients, _factors, _families), strict=True):
            draw(row, settings)
        figure.savefig(unfinished, dpi=110)
    return settings.output


def _plot(axis: Any, title: str, ylabel: str, x: Tensor, xlabel: str, *lines: Line) -> None:
    """Draw lines against angles or probabilities, with title, axis labels and legend."""
    for y, look in lines:
        axis.plot(x.numpy(), y.numpy(), **look)
    limits: Any = {"xlim": (0, 180), "xticks": range(0, 181, 30)} if x[-1] > 1 else {"xlim": (0, 1)}
    axis.set(title=title, ylabel=ylabel, xlabel=xlabel, **limits)
    axis.legend()


def _gradients(row: Any, settings: CurveSettings) -> None:
    row.suptitle("The gradient of a positive (Fig. 1 of the paper)", **HEADING)
    by_angle, by_probability, *maps = row.subplots(1, 4, width_ratios=(1, 1, 1.12, 1.12))
    angle, q, size = curves.ANGLES, curves.PROBABILITIES, "|∂L/∂θ|, 1/rad"
    at_degrees = torch.tensor(settings.degrees).double().deg2rad()
    against_angle, against_q = [], []
    for margins, look, axis in (
        (Margins(), WITHOUT, maps[0]),
        (settings.margins, WITH, maps[1]),
    ):
        gradient = partial(curves.positive_gradient, margins, temperature=settings.temperature)
        against_angle.append((gradient(angle, settings.q), look))
        against_q.append((gradient(at_degrees, q), look))
        both = gradient(angle.unsqueeze(0), q.unsqueeze(1)).numpy()
        mesh = axis.imshow(both, origin="lower", extent=(0, 180, 0, 1), aspect="auto")
        axis.set(title=f"gradient, {look['label']}", xlabel=BY_ANGLE, ylabel="probability q")
        axis.grid(False)
        row.colorbar(mesh, ax=axis, pad=0.02).set_label(size)
    title = f"gradient against angle, q = {settings.q:g}"
    _plot(by_angle, title, size, DEGREES, BY_ANGLE, *against_angle)
    title = f"gradient against probability, θ = {settings.degrees:g}°"
    _plot(by_probability, title, size, q, BY_PROBABILITY, *against_q)


def _factors(row: Any, settings: CurveSettings) -> None:
    row.suptitle("The factors that margins multiply gradients by (Fig. 2, Eq. 12)", **HEADING)
    weight, slope, probability, total = row.subplots(1, 4)
    margins, tau = settings.margins, settings.temperature
    # The slope diverges at the angles 0 and π, the ratio of probabilities at 1.
    angle, q = curves.ANGLES[1:-1], curves.PROBABILITIES[:-1]
    all_together = curves.total_ratio(margins, angle, settings.q, tau)
    for axis, title, factor in (
        (weight, "scale of positives, s · curve(θ)", margins.angle_weight(angle)),
        (slope, "slope, sin(θ + m₁) / sin θ", curves.slope_ratio(margins, angle)),
        (total, f"all together, q = {settings.q:g}", all_together),
    ):
        lines = ((factor, WITH), (torch.ones_like(factor), WITHOUT))
        _plot(axis, title, "factor", DEGREES[1:-1], BY_ANGLE, *lines)
        _cut_off_ends(axis, factor[9:-9])
    at_degrees = torch.tensor(settings.degrees).double().deg2rad()
    positive, negative = curves.probability_ratios(margins, at_degrees, q, tau)
    dashed = {"color": SECOND, "linestyle": (0, (4, 3)), "linewidth": 1.8}
    _plot(
        *(probability, f"probability at θ = {settings.degrees:g}°", "factor", q, BY_PROBABILITY),
        (positive, {**WITH, "label": "positive: (1 − q′) / (1 − q)"}),
        (negative, {**dashed, "label": "negatives: q′ⱼ / qⱼ"}),
        (torch.ones_like(q), WITHOUT),
    )
    if max(positive.max(), negative.max()) > 20:
        probability.set_yscale("log")
        probability.yaxis.set_major_formatter("{x:g}")


def _cut_off_ends(axis: Any, inner: Tensor) -> None:
    """Limit the axis to 0, 1 and values away from the angles 0 and π, where a ratio diverges."""
    inner = inner[inner.isfinite()]
    if len(inner) == 0:
        words = "without margins there is\nno gradient to multiply"
        axis.text(0.5, 0.5, words, ha="center", va="center", transform=axis.transAxes)
        return
    low, high = min(0.0, float(inner.min())), max(1.0, float(inner.max()))
    axis.set_ylim(1.05 * low, high + 0.08 * (high - low))


def family(
    margins: Margins, name: str, others: Sequence[float], effect: Callable[[Margins], Tensor]
) -> list[Line]:
    """Return the lines of an effect for other values of a margin too, the chosen one on top."""
    chosen, lines = getattr(margins, name), []
    values = sorted({*others, chosen})
    for number, value in enumerate(values):
        colour = matplotlib.colormaps["viridis"](0.9 * number / (len(values) - 1))
        look: dict[str, Any] = {"color": colour, "linewidth": 1.4, "alpha": 0.8}
        label = f"{curves.SYMBOLS[name]} = {value:.3g}".replace("inf", "∞")
        label += ", off" * (value == getattr(Margins, name))
        if value == chosen:
            label += " (chosen)"
            look = {"color": CHOSEN, "linewidth": 3.2, "zorder": 3}
        lines.append((effect(replace(margins, **{name: value})), {**look, "label": label}))
    return lines


def _families(row: Any, settings: CurveSettings) -> None:
    """Draw the effect of other values of curvature and attenuation."""
    margins, q = settings.margins, curves.PROBABILITIES[:-1]
    by_angle, by_probability = row.subplots(1, 2)
    title = "Weight of a positive by its angle, for several curvatures c (Eq. 18)"
    lines = family(margins, "curvature", CURVATURES, lambda each: each.angle_weight(curves.ANGLES))
    _plot(by_angle, title, "weight s · curve(θ)", DEGREES, BY_ANGLE, *lines)
    title = "Attenuation 1 / (1 − αq) by probability, for several α (Eq. 20, 21)"
    lines = family(
        margins, "attenuation", ATTENUATIONS, lambda each: each.attenuation_factor(1.0 - q)
    )
    if margins.subtractive > 0.0:
        alpha = -math.expm1(-margins.subtractive / settings.temperature)
        label = f"m₂ = {margins.subtractive:g} acts as α = {alpha:.3g} (Eq. 14)"
        look = {"color": SECOND, "linestyle": ":", "linewidth": 2.6, "label": label}
        lines.append((replace(margins, attenuation=alpha).attenuation_factor(1.0 - q), look))
    # With margins on, the q of Eq. 20 is that with margins.
    _plot(by_probability, title, "factor", q, "probability q of the positive", *lines)
    by_probability.set(yscale="log", ylim=(0.9, 100), yticks=(1, 2, 5, 10, 20, 50, 100))
    by_probability.yaxis.set_major_formatter("{x:g}")
    for axis in (by_angle, by_probability):
        axis.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
