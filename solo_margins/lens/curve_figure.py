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

from solo_margins.config import built, plain
from solo_margins.files import complete_file, output_path
from solo_margins.lens import curves
from solo_margins.losses import Margins
from solo_margins.losses.checks import POSITIVE, UP_TO_ONE, Range, require_number
from solo_margins.losses.margins import FIELDS, ContrastSpec

ENDINGS = (".png", ".pdf", ".svg")
SCALING = "margins.scaling"
KEYS = (
    *(f"margins.{name}" for name in FIELDS),
    SCALING,
    "temperature",
    "q",
    "degrees",
    "output",
)
# Those of the margins paper (§5.3).
CURVATURES = (1 / 3, 0.5, 0.7, 1.0, 1.5, 2.5, 5.0, math.inf)
ATTENUATIONS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
# The looks of lines and plots.
LOOKS: Any = OmegaConf.to_container(OmegaConf.load(Path(__file__).with_name("curve_plots.yaml")))
LINES = LOOKS["lines"]
DEGREES = curves.ANGLES.rad2deg()


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

    Examples:
        >>> parse(["margins.curvature=.inf", "q=0.25"]).q
        0.25
        >>> parse(["margins.angular=4"])
        Traceback (most recent call last):
        ...
        ValueError: margins.angular must be a number in [-π/2, π], got 4
    """
    for argument in arguments:
        key, is_setting, _ = argument.partition("=")
        is_known = key in KEYS or key.startswith(f"{SCALING}.")
        if not is_setting or not is_known:
            keys = ", ".join(KEYS)
            raise ValueError(f"{argument!r} is not key=value with one of the keys {keys}.")
    # A path is not YAML.
    files = [argument for argument in arguments if argument.startswith("output=")]
    cfg = OmegaConf.from_dotlist([one for one in arguments if one not in files])
    settings: dict[str, Any] = {"margins": _margins(cfg)}
    for name in ("temperature", "q", "degrees"):
        if name in cfg:
            settings[name] = cfg[name]
    for file in files:
        settings["output"] = output_path(file.removeprefix("output="), ENDINGS)
    return CurveSettings(**settings)


def _margins(cfg: Any) -> Margins:
    """Return the margins of the arguments, with a scaling of one's own."""
    given = plain(cfg, "margins") or {}
    if given.get("scaling") is not None:
        try:
            from solo_margins.scalings import read_scaling
        except ModuleNotFoundError as missing:
            raise ValueError(f"{SCALING} needs {missing.name}, which is not installed") from None
        try:
            given["scaling"] = read_scaling(given["scaling"])
        except ValueError as reason:
            # It has a shorter name here.
            raise ValueError(str(reason).removeprefix("method_kwargs.")) from None
    return built("margins", given, Margins)


def draw_curves(arguments: Sequence[str]) -> Path:
    """Draw the figure that ``key=value`` arguments describe, and return its path."""
    settings = parse(arguments)
    with matplotlib.rc_context(LOOKS["style"]), complete_file(settings.output) as unfinished:
        figure: Any = Figure(figsize=(16, 12.2), layout="constrained")
        title = f"{curves.described(settings.margins)}   (τ = {settings.temperature:g})"
        figure.suptitle(title, fontsize=15, weight="bold")
        axes = figure.subplot_mosaic(LOOKS["mosaic"])
        in_titles = {"q": settings.q, "degrees": settings.degrees, "scaling": ""}
        if settings.margins.scaling is not None:
            in_titles["scaling"] = f" · scaling, q = {settings.q:g}"
        for name, look in LOOKS["plots"].items():
            axes[name].set(**{**look, "title": look["title"].format_map(in_titles)})
        _gradients(figure, axes, settings)
        _factors(axes, settings)
        _families(axes, settings)
        for axis in axes.values():
            if axis.lines:
                axis.legend()
        figure.savefig(unfinished, dpi=110)
    return settings.output


def _gradients(figure: Any, axes: dict[str, Any], settings: CurveSettings) -> None:
    """Draw the gradient of a positive (Fig. 1 of the paper)."""
    angle, q = curves.ANGLES, curves.PROBABILITIES
    for name, margins in (("without", Margins()), ("with", settings.margins)):
        gradient = partial(curves.positive_gradient, ContrastSpec(settings.temperature, margins))
        by_angle, by_probability = axes["gradient by angle"], axes["gradient by probability"]
        by_angle.plot(DEGREES, gradient(angle, settings.q), **LINES[name])
        by_probability.plot(q, gradient(settings.angle, q), **LINES[name])
        both = gradient(angle.unsqueeze(0), q.unsqueeze(1))
        mesh = axes[name].imshow(both, origin="lower", extent=(0, 180, 0, 1), aspect="auto")
        axes[name].grid(False)
        figure.colorbar(mesh, ax=axes[name], pad=0.02).set_label(by_angle.get_ylabel())


def _factors(axes: dict[str, Any], settings: CurveSettings) -> None:
    """Draw the factors that margins multiply gradients by (Fig. 2, Eq. 12)."""
    margins, spec = settings.margins, ContrastSpec(settings.temperature, settings.margins)
    # The slope diverges at the angles 0 and π, the ratio of probabilities at 1.
    angle, q = curves.ANGLES[1:-1], curves.PROBABILITIES[:-1]
    factors = {
        "scale": curves.positive_weight(spec, angle, settings.q),
        "slope": curves.slope_ratio(margins, angle),
        "all": curves.total_ratio(spec, angle, settings.q),
    }
    for name, factor in factors.items():
        axes[name].plot(DEGREES[1:-1], factor, **LINES["with"])
        _cut_off_ends(axes[name], factor[9:-9])
    positive, negative = curves.probability_ratios(spec, settings.angle, q)
    axes["probability"].plot(q, positive, **LINES["positive"])
    axes["probability"].plot(q, negative, **LINES["negative"])
    if max(positive.max(), negative.max()) > 20:
        axes["probability"].set_yscale("log")
        axes["probability"].yaxis.set_major_formatter("{x:g}")
    for name in (*factors, "probability"):
        axes[name].axhline(1.0, **LINES["without"])


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
) -> list[tuple[Tensor, dict[str, Any]]]:
    """Return the lines of an effect for other values of a margin too, the chosen one on top."""
    chosen = getattr(margins, name)
    values = sorted({*others, chosen})
    lines = []
    for number, value in enumerate(values):
        label = f"{curves.SYMBOLS[name]} = {value:.3g}".replace("inf", "∞")
        if value == getattr(Margins, name):
            label += ", off"
        if value == chosen:
            look = {**LINES["chosen"], "label": f"{label} (chosen)"}
        else:
            colour = matplotlib.colormaps["viridis"](0.9 * number / (len(values) - 1))
            look = {**LINES["other"], "color": colour, "label": label}
        lines.append((effect(replace(margins, **{name: value})), look))
    return lines


def _families(axes: dict[str, Any], settings: CurveSettings) -> None:
    """Draw the effect of other values of curvature and attenuation."""
    margins, angle, q = settings.margins, curves.ANGLES, curves.PROBABILITIES[:-1]

    def weight(each: Margins) -> Tensor:
        spec = ContrastSpec(settings.temperature, each)
        return curves.positive_weight(spec, angle, settings.q)

    def attenuation(each: Margins) -> Tensor:
        return each.attenuation_factor(1.0 - q)

    for values, look in family(margins, "curvature", CURVATURES, weight):
        axes["curvature"].plot(DEGREES, values, **look)
    lines = family(margins, "attenuation", ATTENUATIONS, attenuation)
    if margins.subtractive > 0.0:
        alpha = -math.expm1(-margins.subtractive / settings.temperature)
        label = f"m₂ = {margins.subtractive:g} acts as α = {alpha:.3g} (Eq. 14)"
        same = attenuation(replace(margins, attenuation=alpha))
        lines.append((same, {**LINES["subtractive"], "label": label}))
    for factor, look in lines:
        axes["attenuation"].plot(q, factor, **look)
    axes["attenuation"].yaxis.set_major_formatter("{x:g}")
