"""What a report shows, in the order it is read: each section is a title and some plots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from solo_margins.lens import curves
from solo_margins.lens.curves import Series
from solo_margins.lens.report_figures import (
    Figure,
    Quantity,
    accuracies,
    axis,
    curves_of_settings,
    histograms,
    margins_over_steps,
    over_steps,
    with_bands,
)
from solo_margins.lens.report_runs import ACCURACIES, ReportedRun
from solo_margins.losses import Margins

DEGREES = 180.0 / math.pi
PERCENT = 100.0
POINTS = 91
SCHEDULED = {
    "angular": "angular margin m₁, rad",
    "subtractive": "subtractive margin m₂",
    "positive_scale": "scale of positives s",
    "curvature": "curvature c",
    "attenuation": "attenuation α",
}
ANGLE = "angle θ of the positive, degrees"


@dataclass
class Section:
    """A heading with its plots."""

    key: str
    title: str
    figures: list[Figure]


def sections(runs: Sequence[ReportedRun], notes: list[str]) -> list[Section]:
    """Return the sections that have something to show; what cannot be drawn is added to notes."""
    found = [
        Section("accuracy", "Accuracy", _present(_accuracy(runs))),
        Section("distributions", "Distributions over time", _present(_distributions(runs))),
        Section("gradients", "Gradients", _present(_gradients(runs))),
        Section("geometry", "Representation", _present(_geometry(runs))),
        Section("loss", "Loss", _present(_loss(runs))),
        Section("margins", "Margins", _present(_margins(runs, notes))),
    ]
    others = _others(runs, found)
    if others:
        found.append(Section("others", "Further quantities", others))
    return [section for section in found if section.figures]


def _present(figures: Sequence[Figure | None]) -> list[Figure]:
    return [figure for figure in figures if figure is not None]


def _accuracy(runs: Sequence[ReportedRun]) -> list[Figure | None]:
    return [accuracies(runs, column, name) for column, name in ACCURACIES.items()]


def _distributions(runs: Sequence[ReportedRun]) -> list[Figure | None]:
    angles = histograms(
        runs,
        "Angles",
        "Of positive pairs (filled) and of negative pairs.",
        [
            Quantity("positive_angle", "positives", factor=DEGREES),
            Quantity("negative_angle", "negatives", "dot", DEGREES),
        ],
        "angle, degrees",
        1.0,
        "degree",
        (0.0, 180.0),
    )
    if angles is not None:
        angles.is_wide = True
    probabilities = histograms(
        runs,
        "Probability q of the positives",
        "At 1 the positive has won and, without attenuation, its gradient is gone.",
        [Quantity("q")],
        "probability q",
        0.01,
        "0.01",
        (0.0, 1.0),
    )
    distances = histograms(
        runs,
        "Pairwise distances",
        "Of all pairs of a batch, (1 − cos θ) / 2.",
        [Quantity("distance")],
        "distance",
        0.01,
        "0.01",
        (0.0, 1.0),
    )
    return [angles, probabilities, with_bands(distances, runs)]


def _gradients(runs: Sequence[ReportedRun]) -> list[Figure | None]:
    from_zero = {"rangemode": "tozero"}
    return [
        over_steps(
            runs,
            "Share of the gradient that positives get",
            "Negatives get the rest.",
            [
                Quantity("positive_gradient_share", "with margins", factor=PERCENT),
                Quantity(
                    "positive_gradient_share_without_margins", "without margins", "dot", PERCENT
                ),
            ],
            "share, %",
            {"range": [0, 100]},
        ),
        over_steps(
            runs,
            "Effective scale",
            "By what margins multiply the gradients of this batch; 1 is none.",
            [
                Quantity("effective_scale", "positives"),
                Quantity("effective_scale_negatives", "negatives", "dot"),
            ],
            "factor",
            from_zero,
        ),
        over_steps(
            runs,
            "Silenced positives",
            "Positives to which the curve leaves less than a tenth of their gradient.",
            [Quantity("silenced_positives", factor=PERCENT)],
            "share of positives, %",
            from_zero,
        ),
        over_steps(
            runs,
            "Saturated rows",
            "Rows whose q is above 0.99: their gradient vanishes.",
            [Quantity("saturated_q", factor=PERCENT)],
            "share of rows, %",
            from_zero,
        ),
        over_steps(
            runs, "Gradient norm", "", [Quantity("gradient_norm")], "norm", {"rangemode": "tozero"}
        ),
    ]


def _geometry(runs: Sequence[ReportedRun]) -> list[Figure | None]:
    return [
        over_steps(
            runs,
            "Mean angle",
            "",
            [
                Quantity("positive_angle", "positives", factor=DEGREES),
                Quantity("negative_angle", "negatives", "dot", DEGREES),
            ],
            "angle, degrees",
        ),
        over_steps(
            runs,
            "Separation",
            "Probability that a positive is closer than a negative; 50 % is chance.",
            [Quantity("angle_separation", factor=PERCENT)],
            "probability, %",
        ),
        over_steps(
            runs,
            "Mean probability of the positives",
            "",
            [Quantity("q")],
            "probability q",
            {"rangemode": "tozero"},
        ),
        over_steps(
            runs,
            "Alignment",
            "Mean squared distance of positives; smaller is closer.",
            [Quantity("alignment")],
            "alignment",
        ),
        over_steps(
            runs,
            "Uniformity",
            "Smaller is more evenly spread over the sphere.",
            [Quantity("uniformity")],
            "uniformity",
        ),
        over_steps(
            runs,
            "Effective rank",
            "How many directions the features use, and how many they have.",
            [Quantity("effective_rank", "used"), Quantity("feature_width", "available", "dot")],
            "dimensions",
            {"rangemode": "tozero"},
        ),
    ]


def _loss(runs: Sequence[ReportedRun]) -> list[Figure | None]:
    return [
        over_steps(runs, "Loss", "", [Quantity("loss")], "loss"),
        over_steps(
            runs,
            "Terms of the contrastive loss",
            "What positives and what negatives contribute.",
            [Quantity("loss_positive", "positives"), Quantity("loss_negative", "negatives", "dot")],
            "loss",
        ),
        over_steps(
            runs,
            "Distance polarization",
            "The penalty, before its weight.",
            [Quantity("polarization_loss")],
            "penalty R",
            {"rangemode": "tozero"},
        ),
        over_steps(
            runs,
            "Pairs inside the band",
            "What the penalty acts on.",
            [Quantity("pairs_in_band", factor=PERCENT)],
            "share of pairs, %",
            {"rangemode": "tozero"},
        ),
    ]


def _margins(runs: Sequence[ReportedRun], notes: list[str]) -> list[Figure | None]:
    known: dict[int, Margins] = {}
    for run in runs:
        try:
            margins = run.margins()
        except (ValueError, TypeError) as reason:
            notes.append(f"The margins of {run.label} cannot be drawn: {reason}.")
            continue
        if margins is not None:
            known[id(run)] = margins

    def weight(run: ReportedRun) -> Series | None:
        margins = known.get(id(run))
        return None if margins is None else curves.weight_by_angle(margins, POINTS)

    def gradient(run: ReportedRun) -> Series | None:
        margins = known.get(id(run))
        if margins is None:
            return None
        tau = run.temperature
        # Without a temperature there are no negatives, and q has no meaning.
        return curves.gradient_by_angle(
            margins, 0.5, tau or 1.0, POINTS, negatives_weight=1.0 if tau else 0.0
        )

    def attenuation(run: ReportedRun) -> Series | None:
        margins = known.get(id(run))
        if margins is None or not run.temperature:
            return None
        return curves.attenuation_by_probability(margins, POINTS)

    temperatures = {run.temperature for run in runs if id(run) in known}
    plain = None
    if len(temperatures) == 1:
        tau = temperatures.pop()
        plain = curves.gradient_by_angle(
            Margins(), 0.5, tau or 1.0, POINTS, negatives_weight=1.0 if tau else 0.0
        )
    along_angle = {"rangemode": "tozero"}
    strongest = max((margins.attenuation for margins in known.values()), default=0.0)
    factor = axis("factor", rangemode="tozero")
    if strongest > 0.75:
        factor = axis("factor", type="log", tickvals=[1, 2, 5, 10, 20, 50, 100])
    figures = [
        curves_of_settings(
            runs,
            "Weight of a positive by its angle",
            "s · curve(θ), at the end of the run where it is scheduled.",
            weight,
            ANGLE,
            axis("weight", **along_angle),
        ),
        curves_of_settings(
            runs,
            "Gradient of a positive by its angle",
            "|∂L/∂θ| at q = 0.5, where there are negatives.",
            gradient,
            ANGLE,
            axis("gradient, 1/rad", **along_angle),
            plain,
        ),
        curves_of_settings(
            runs,
            "Attenuation",
            "The factor 1 / (1 − αq) that keeps gradients alive as q nears 1.",
            attenuation,
            "probability q of the positive",
            factor,
        ),
    ]
    for figure in figures[:2]:
        if figure is not None:
            figure.layout["xaxis"].update(range=[0, 180], dtick=30)
    seen = {name for run in runs for each in run.lens.observations for name in each.margins}
    names = [*SCHEDULED, *sorted(seen - set(SCHEDULED))]
    scheduled = [
        margins_over_steps(runs, name, SCHEDULED.get(name, name.replace("_", " ")))
        for name in names
    ]
    return [*figures, *scheduled]


def _others(runs: Sequence[ReportedRun], drawn: Sequence[Section]) -> list[Figure]:
    """Return plots of what the lens saw and no other section knows."""
    named = {name for run in runs for seen in run.lens.observations for name in seen.scalars}
    known = {name for section in drawn for figure in section.figures for name in figure.quantities}
    return _present(
        [
            over_steps(runs, name.replace("_", " ").capitalize(), "", [Quantity(name)], name)
            for name in sorted(named - known)
        ]
    )
