"""Draws the figures of the margins paper's sections 4 and 5 for any margins.

python -m solo_margins.lens curves margins.angular=0.5 margins.subtractive=0.2 temperature=0.2
"""

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
from solo_margins.losses.margins import FIELDS, ContrastSpec

ENDINGS = (".png", ".pdf", ".svg")
KEYS = (*(f"margins.{name}" for name in FIELDS), "temperature", "q", "degrees", "output")
# Those of the margins paper (§5.3).
CURVATURES = (1 / 3, 0.5, 0.7, 1.0, 1.5, 2.5, 5.0, math.inf)
ATTENUATIONS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
STYLE: dict[Any, Any] = {"axes.grid": True, "grid.alpha": 0.3, "legend.fontsize": 9}
PLAIN, CHOSEN, SECOND = "#6b7280", "#c2410c", "#1d4ed8"
WITHOUT = {"color": PLAIN, "linestyle": "--", "linewidth": 1.8, "label": "no margins"}
WITH = {"color": CHOSEN, "linewidth": 2.4, "label": "these margins"}
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

    @property
    def angle(self) -> Tensor:
        """The positive's angle in plots against the probability, in radians."""
        return torch.tensor(math.radians(self.degrees), dtype=torch.float64)

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
    for argument in arguments:
        key, is_setting, _ = argument.partition("=")
        if not is_setting or key not in KEYS:
            keys = ", ".join(KEYS)
            raise ValueError(f"{argument!r} is not key=value with one of the keys {keys}.")
    files = [argument for argument in arguments if argument.startswith("output=")]
    settings: Any = OmegaConf.from_dotlist([one for one in arguments if one not in files])
    settings = {**settings, "margins": read(settings, "margins", Margins)}
    for file in files:
        settings["output"] = output_path(file.removeprefix("output="), ENDINGS)
    return CurveSettings(**settings)


def draw_curves(arguments: Sequence[str]) -> Path:
    """Draw the figure that ``key=value`` arguments describe, and return its path."""
    settings = parse(arguments)
    with matplotlib.rc_context(STYLE), complete_file(settings.output) as unfinished:
        figure: Any = Figure(figsize=(16, 12.2), layout="constrained")
        title = f"{curves.described(settings.margins)}   (τ = {settings.temperature:g})"
        figure.suptitle(title, fontsize=15, weight="bold")
        axes = list(figure.subplot_mosaic("abcd;efgh;iijj").values())
        _gradients(figure, axes[:4], settings)
        _factors(axes[4:8], settings)
        _families(axes[8:], settings)
        figure.savefig(unfinished, dpi=110)
    return settings.output


def _plot(axis: Any, title: str, ylabel: str, x: Tensor, xlabel: str, *lines: Line) -> None:
    """Draw lines against angles or probabilities, with title, axis labels and legend."""
    for y, look in lines:
        axis.plot(x.numpy(), y.numpy(), **look)
    limits: Any = {"xlim": (0, 180), "xticks": range(0, 181, 30)} if x[-1] > 1 else {"xlim": (0, 1)}
    axis.set(title=title, ylabel=ylabel, xlabel=xlabel, **limits)
    axis.legend()


def _gradients(figure: Any, axes: Sequence[Any], settings: CurveSettings) -> None:
    """Draw the gradient of a positive (Fig. 1 of the paper)."""
    angle, q, size = curves.ANGLES, curves.PROBABILITIES, "|∂L/∂θ|, 1/rad"
    by_angle, by_probability = [], []
    for margins, look, axis in ((Margins(), WITHOUT, axes[2]), (settings.margins, WITH, axes[3])):
        gradient = partial(curves.positive_gradient, ContrastSpec(settings.temperature, margins))
        by_angle.append((gradient(angle, settings.q), look))
        by_probability.append((gradient(settings.angle, q), look))
        both = gradient(angle.unsqueeze(0), q.unsqueeze(1)).numpy()
        mesh = axis.imshow(both, origin="lower", extent=(0, 180, 0, 1), aspect="auto")
        axis.set(title=f"gradient, {look['label']}", xlabel=BY_ANGLE, ylabel="probability q")
        axis.grid(False)
        figure.colorbar(mesh, ax=axis, pad=0.02).set_label(size)
    title = f"gradient of a positive (Fig. 1), q = {settings.q:g}"
    _plot(axes[0], title, size, DEGREES, BY_ANGLE, *by_angle)
    title = f"gradient of a positive (Fig. 1), θ = {settings.degrees:g}°"
    _plot(axes[1], title, size, q, BY_PROBABILITY, *by_probability)


def _factors(axes: Sequence[Any], settings: CurveSettings) -> None:
    """Draw the factors that margins multiply gradients by (Fig. 2, Eq. 12)."""
    margins, spec = settings.margins, ContrastSpec(settings.temperature, settings.margins)
    # The slope diverges at the angles 0 and π, the ratio of probabilities at 1.
    angle, q = curves.ANGLES[1:-1], curves.PROBABILITIES[:-1]
    all_together = curves.total_ratio(spec, angle, settings.q)
    for axis, title, factor in (
        (axes[0], "scale of positives (Fig. 2), s · curve(θ)", margins.angle_weight(angle)),
        (axes[1], "slope (Fig. 2), sin(θ + m₁) / sin θ", curves.slope_ratio(margins, angle)),
        (axes[3], f"all factors together (Eq. 12), q = {settings.q:g}", all_together),
    ):
        lines = ((factor, WITH), (torch.ones_like(factor), WITHOUT))
        _plot(axis, title, "factor", DEGREES[1:-1], BY_ANGLE, *lines)
        _cut_off_ends(axis, factor[9:-9])
    positive, negative = curves.probability_ratios(spec, settings.angle, q)
    dashed = {"color": SECOND, "linestyle": (0, (4, 3)), "linewidth": 1.8}
    of_probability = (
        (positive, {**WITH, "label": "positive: (1 − q′) / (1 − q)"}),
        (negative, {**dashed, "label": "negatives: q′ⱼ / qⱼ"}),
        (torch.ones_like(q), WITHOUT),
    )
    title = f"probability (Fig. 2), θ = {settings.degrees:g}°"
    _plot(axes[2], title, "factor", q, BY_PROBABILITY, *of_probability)
    if max(positive.max(), negative.max()) > 20:
        axes[2].set_yscale("log")
        axes[2].yaxis.set_major_formatter("{x:g}")


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


def _families(axes: Sequence[Any], settings: CurveSettings) -> None:
    """Draw the effect of other values of curvature and attenuation."""
    margins, angle, q = settings.margins, curves.ANGLES, curves.PROBABILITIES[:-1]
    title = "weight of a positive for several curvatures c (Eq. 18)"
    lines = family(margins, "curvature", CURVATURES, lambda each: each.angle_weight(angle))
    _plot(axes[0], title, "weight s · curve(θ)", DEGREES, BY_ANGLE, *lines)
    attenuation = partial(Margins.attenuation_factor, complement=1.0 - q)
    lines = family(margins, "attenuation", ATTENUATIONS, attenuation)
    if margins.subtractive > 0.0:
        alpha = -math.expm1(-margins.subtractive / settings.temperature)
        label = f"m₂ = {margins.subtractive:g} acts as α = {alpha:.3g} (Eq. 14)"
        look = {"color": SECOND, "linestyle": ":", "linewidth": 2.6, "label": label}
        lines.append((attenuation(replace(margins, attenuation=alpha)), look))
    title = "attenuation 1 / (1 − αq) for several α (Eq. 20, 21)"
    # With margins on, the q of Eq. 20 is that with margins.
    _plot(axes[1], title, "factor", q, "probability q of the positive", *lines)
    axes[1].set(yscale="log", ylim=(0.9, 100), yticks=(1, 2, 5, 10, 20, 50, 100))
    axes[1].yaxis.set_major_formatter("{x:g}")
