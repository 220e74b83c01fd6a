"""The figures of the margins paper's sections 4 and 5, for margins of one's own.

python -m solo_margins.lens curves margins.angular=0.5 margins.subtractive=0.2 temperature=0.2
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from solo_margins.lens import curves
from solo_margins.lens.curve_settings import CurveSettings, parse
from solo_margins.lens.curves import Series
from solo_margins.lens.files import complete_file, lens_package
from solo_margins.losses import Margins
from solo_margins.losses.margins import FIELDS

SYMBOLS = {
    "angular": "m₁",
    "subtractive": "m₂",
    "positive_scale": "s",
    "curvature": "c",
    "attenuation": "α",
}

PLAIN = "#6b7280"
CHOSEN = "#c2410c"
SECOND = "#1d4ed8"


def draw_curves(arguments: Sequence[str]) -> Path:
    """Draw the figure that ``key=value`` arguments describe, and return where it is."""
    settings = parse(arguments)
    matplotlib = lens_package("matplotlib")
    matplotlib.use("Agg")
    pyplot = lens_package("matplotlib.pyplot")
    style = {
        "axes.grid": True,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlesize": 11,
        "font.size": 10,
        "grid.alpha": 0.3,
        "legend.fontsize": 9,
        "legend.frameon": False,
    }
    with matplotlib.rc_context(style):
        figure = _figure(pyplot, settings)
        try:
            with complete_file(settings.output) as partial:
                figure.savefig(partial, dpi=110)
        finally:
            pyplot.close(figure)
    return settings.output


def described(margins: Margins) -> str:
    """Return the margins that are on, in the paper's symbols.

    Example:
        >>> described(Margins(angular=0.5, curvature=1.5))
        'm₁ = 0.5, c = 1.5'
    """
    defaults = Margins()
    parts = [
        f"{SYMBOLS.get(name, name)} = {_short(getattr(margins, name))}"
        for name in FIELDS
        if getattr(margins, name) != getattr(defaults, name)
    ]
    return ", ".join(parts) or "no margins"


def _short(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "∞" if math.isinf(value) else f"{value:.3g}"


def _figure(pyplot: Any, settings: CurveSettings) -> Any:
    figure = pyplot.figure(figsize=(16, 12.2), layout="constrained")
    figure.get_layout_engine().set(wspace=0.05)
    sheets = figure.subfigures(3, 1, height_ratios=(1, 1, 1.15), hspace=0.04)
    figure.suptitle(
        f"{described(settings.margins)}   (τ = {settings.temperature:g})",
        fontsize=15,
        weight="bold",
    )
    _gradients(sheets[0], settings)
    _factors(sheets[1], settings)
    _families(sheets[2], settings)
    return figure


def _line(axis: Any, series: Series, **look: Any) -> None:
    axis.plot(series.x.numpy(), series.y.numpy(), **look)


def _pair(axis: Any, plain: Series, chosen: Series) -> None:
    """Draw a curve without margins and the same with them."""
    _line(axis, plain, color=PLAIN, linestyle="--", linewidth=1.8, label="no margins")
    _line(axis, chosen, color=CHOSEN, linewidth=2.4, label="these margins")


def _along_angle(axis: Any) -> None:
    axis.set_xlabel("angle θ of the positive, degrees")
    axis.set_xlim(0, 180)
    axis.set_xticks(range(0, 181, 30))


def _along_probability(axis: Any) -> None:
    axis.set_xlabel("probability q of the positive, without margins")
    axis.set_xlim(0, 1)


def _legend_above(axis: Any, **look: Any) -> None:
    """Put the legend between title and plot, where no data can be."""
    columns = len(axis.get_legend_handles_labels()[1])
    axis.legend(
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=columns,
        borderaxespad=0.2,
        columnspacing=1.2,
        handlelength=1.8,
        **look,
    )
    axis.set_title(axis.get_title(), pad=24)


def _gradients(sheet: Any, settings: CurveSettings) -> None:
    sheet.suptitle(
        "How strongly a positive is pulled (Fig. 1 of the paper)", fontsize=13, weight="bold"
    )
    by_angle, by_probability, plain_map, chosen_map = sheet.subplots(
        1, 4, width_ratios=(1, 1, 1.12, 1.12)
    )
    margins, tau = settings.margins, settings.temperature
    at_q = (settings.q, tau)
    at_angle = (settings.degrees, tau)
    _pair(
        by_angle,
        curves.gradient_by_angle(Margins(), *at_q),
        curves.gradient_by_angle(margins, *at_q),
    )
    by_angle.set_title(f"gradient against angle, q = {settings.q:g}")
    _along_angle(by_angle)
    _pair(
        by_probability,
        curves.gradient_by_probability(Margins(), *at_angle),
        curves.gradient_by_probability(margins, *at_angle),
    )
    by_probability.set_title(f"gradient against probability, θ = {settings.degrees:g}°")
    _along_probability(by_probability)
    for axis in (by_angle, by_probability):
        axis.set_ylabel("|∂L/∂θ|, 1/rad")
        axis.set_ylim(bottom=0)
        _legend_above(axis)
    for axis, shown, title in (
        (plain_map, Margins(), "no margins"),
        (chosen_map, margins, "these margins"),
    ):
        degrees, q, found = curves.gradient_map(shown, tau)
        mesh = axis.pcolormesh(
            degrees.numpy(), q.numpy(), found.numpy(), shading="gouraud", rasterized=True
        )
        axis.grid(False)
        axis.set_title(f"gradient, {title}", pad=24)
        axis.set_ylabel("probability q")
        _along_angle(axis)
        bar = sheet.colorbar(mesh, ax=axis, pad=0.02)
        bar.set_label("|∂L/∂θ|, 1/rad")


def _factors(sheet: Any, settings: CurveSettings) -> None:
    sheet.suptitle(
        "The factors that margins multiply gradients by (Fig. 2, Eq. 12)",
        fontsize=13,
        weight="bold",
    )
    weight, slope, probability, total = sheet.subplots(1, 4)
    margins, tau = settings.margins, settings.temperature
    at_angle = (settings.degrees, tau)

    weight.set_title("scale of positives, s · curve(θ)")
    _line(weight, curves.weight_by_angle(margins), color=CHOSEN, linewidth=2.4)
    weight.set_ylim(0, 1.08 * max(1.0, margins.positive_scale))

    slope.set_title("slope, sin(θ + m₁) / sin θ")
    found = curves.slope_ratio(margins)
    _line(slope, found, color=CHOSEN, linewidth=2.4)
    _limit(slope, found)

    probability.set_title(f"probability at θ = {settings.degrees:g}°")
    positive = curves.probability_ratio(margins, *at_angle)
    negative = curves.negative_ratio(margins, *at_angle)
    _line(probability, positive, color=CHOSEN, linewidth=2.4, label="positive: (1 − q′) / (1 − q)")
    _line(
        probability,
        negative,
        color=SECOND,
        linestyle=(0, (4, 3)),
        linewidth=1.8,
        label="negatives: q′ⱼ / qⱼ",
    )
    largest = max(float(positive.y.max()), float(negative.y.max()))
    if largest > 20:
        probability.set_yscale("log")
        probability.yaxis.set_major_formatter("{x:g}")
    else:
        probability.set_ylim(0, 1.08 * max(1.0, largest))
    _along_probability(probability)
    _legend_above(probability, fontsize=8)

    total.set_title(f"all together, q = {settings.q:g}")
    found = curves.total_ratio(margins, settings.q, tau)
    _line(total, found, color=CHOSEN, linewidth=2.4)
    _limit(total, found)

    for axis in (weight, slope, total):
        _along_angle(axis)
        axis.set_title(axis.get_title(), pad=24)
    for axis in (weight, slope, probability, total):
        axis.axhline(1.0, color=PLAIN, linestyle="--", linewidth=1.4)
    for axis in (weight, slope, total):
        axis.annotate(
            "no margins",
            (0.99, 1.0),
            xycoords=("axes fraction", "data"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="right",
            fontsize=9,
            color=PLAIN,
        )
    weight.set_ylabel("factor")


def _limit(axis: Any, series: Series) -> None:
    """Cut off what diverges at angle 0, where sin θ is in the denominator."""
    inner = series.y[(series.x >= 10.0) & (series.x <= 170.0)]
    inner = inner[inner.isfinite()]
    if len(inner) == 0:
        words = "without margins there is\nno gradient to multiply"
        axis.text(0.5, 0.5, words, ha="center", va="center", transform=axis.transAxes)
        return
    low, high = min(0.0, float(inner.min())), max(1.0, float(inner.max()))
    axis.set_ylim(low - (0.05 * (high - low) if low < 0 else 0.0), high + 0.08 * (high - low))


def _families(sheet: Any, settings: CurveSettings) -> None:
    margins = settings.margins
    by_angle, by_probability = sheet.subplots(1, 2)
    _family(
        by_angle, curves.weights_by_curvature(margins), margins.curvature, "c", _curvature_label
    )
    by_angle.set_title("Weight of a positive by its angle, for several curvatures c (Eq. 18)")
    by_angle.set_ylabel("weight s · curve(θ)")
    by_angle.set_ylim(0, 1.08 * margins.positive_scale)
    _along_angle(by_angle)

    _family(
        by_probability,
        curves.attenuations_by_strength(margins),
        margins.attenuation,
        "α",
        lambda alpha: "0, off" if alpha == 0 else f"{alpha:.3g}",
    )
    if margins.subtractive > 0.0:
        equivalent = -math.expm1(-margins.subtractive / settings.temperature)
        _line(
            by_probability,
            curves.attenuation_by_probability(replace(margins, attenuation=equivalent)),
            color=SECOND,
            linestyle=":",
            linewidth=2.6,
            label=f"m₂ = {margins.subtractive:g} acts as α = {equivalent:.3g} (Eq. 14)",
        )
    by_probability.set_title("Attenuation 1 / (1 − αq) by probability, for several α (Eq. 20, 21)")
    by_probability.set_ylabel("factor")
    by_probability.set_yscale("log")
    by_probability.set_ylim(0.9, 100)
    by_probability.set_yticks([1, 2, 5, 10, 20, 50, 100], ["1", "2", "5", "10", "20", "50", "100"])
    by_probability.minorticks_off()
    _along_probability(by_probability)
    # With margins on, the q of Eq. 20 is that with margins.
    by_probability.set_xlabel("probability q of the positive")
    for axis in (by_angle, by_probability):
        axis.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))


def _curvature_label(curvature: float) -> str:
    return "∞, off" if math.isinf(curvature) else f"{curvature:.3g}"


def _family(
    axis: Any, family: Mapping[float, Series], chosen: float, symbol: str, named: Any
) -> None:
    """Draw curves from light to dark, and the chosen one on top of them."""
    pyplot = lens_package("matplotlib.pyplot")
    shades = pyplot.get_cmap("viridis")
    for place, (value, series) in enumerate(family.items()):
        look: dict[str, Any] = {
            "color": shades(0.9 * place / max(1, len(family) - 1)),
            "linewidth": 1.4,
            "alpha": 0.8,
        }
        label = f"{symbol} = {named(value)}"
        if value == chosen:
            look, label = {"color": CHOSEN, "linewidth": 3.2, "zorder": 3}, f"{label} (chosen)"
        _line(axis, series, label=label, **look)
