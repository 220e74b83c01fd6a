"""The grid of runs behind every table and figure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from solo_margins.papers import (
    ATTENUATION,
    LINEAR_PROBING,
    SMALL_DATA,
    TRANSFER,
    TRANSFERS,
    Accuracy,
)
from solo_margins.recipes import CELLS

TITLES = {
    "mocov3_margin": "MoCo v3",
    "simclr_margin": "SimCLR",
    "byol_curv": "BYOL",
    "baseline": "",
    "margins": "margins",
    "pos": "pos.",
    "pos_curv": "pos. & curv.",
    "curv": "curv.",
    "dp": "DP",
    "debiased": "debiased",
    "debiased_dp": "debiased + DP",
    "hard": "hard negatives",
    "hard_dp": "hard + DP",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "stl10": "STL-10",
    "tinyimagenet": "Tiny ImageNet",
    "imagenet": "ImageNet",
}


@dataclass(frozen=True)
class Cell:
    """One pretraining: a recipe, and what is changed in it."""

    method: str
    data: str
    variant: str
    changes: tuple[str, ...] = ()
    """Hydra overrides."""


@dataclass(frozen=True)
class Entry:
    """Where the accuracy of a cell stands in a table or figure."""

    row: str
    column: str
    cell: Cell
    probed_on: str
    paper: Accuracy | None = None
    baseline: str | None = None
    """The row that this one is compared with."""
    x: float | None = None
    """The place on the axis of a curve; infinite for a setting that is off."""
    y: float | None = None
    """The place on the other axis of a heat map."""


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper, or one of ours."""

    title: str
    entries: tuple[Entry, ...]
    axis: str | None = None
    """What ``x`` is, where the experiment is a curve or a heat map."""
    other_axis: str | None = None
    """What ``y`` is, where it is a heat map."""


def row_title(method: str, variant: str) -> str:
    """Return how the paper calls a row.

    >>> row_title("mocov3_margin", "baseline"), row_title("mocov3_margin", "pos")
    ('MoCo v3', 'MoCo v3 + pos.')
    """
    added = TITLES[variant]
    return f"{TITLES[method]} + {added}" if added else TITLES[method]


def scale_change(scale: float) -> str:
    """Return the override that sets the scale of positives."""
    return f"method_kwargs.margins.positive_scale={scale:g}"


def curvature_change(curvature: float) -> str:
    """Return the override that sets the curvature; infinity switches it off."""
    return f"method_kwargs.margins.curvature={curvature:g}"


def _variants() -> Iterator[tuple[str, str]]:
    """Yield method and variant of every row of Tables 3 and 4."""
    for method in ("mocov3_margin", "simclr_margin", "byol_curv"):
        for variant in CELLS[method]["cifar10"]:
            if (method, "cifar10", variant) in LINEAR_PROBING:
                yield method, variant


def _table_2() -> Iterator[Entry]:
    for (method, data, alpha, kind), accuracy in ATTENUATION.items():
        changes = (
            f"method_kwargs.margins.attenuation={alpha:g}",
            f"method_kwargs.margins.attenuation_type={kind}",
        )
        cell = Cell(method, data, "baseline", changes if alpha else ())
        title = f"{TITLES[method]}, α = {alpha:g}, type {kind}" if alpha else TITLES[method]
        baseline = TITLES[method] if alpha else None
        yield Entry(title, TITLES[data], cell, data, accuracy, baseline)


def _table_3() -> Iterator[Entry]:
    for method, variant in _variants():
        for data in SMALL_DATA:
            yield Entry(
                row_title(method, variant),
                TITLES[data],
                Cell(method, data, variant),
                data,
                LINEAR_PROBING[method, data, variant],
                None if variant == "baseline" else TITLES[method],
            )


def _table_4() -> Iterator[Entry]:
    for method, variant in _variants():
        for source, target in TRANSFERS:
            yield Entry(
                row_title(method, variant),
                f"{TITLES[source]} → {TITLES[target]}",
                Cell(method, source, variant),
                target,
                TRANSFER[method, source, target, variant],
                None if variant == "baseline" else TITLES[method],
            )


def _table_6() -> Iterator[Entry]:
    for method in ("mocov3_margin", "simclr_margin"):
        for variant in ("baseline", "pos_curv"):
            cell = Cell(method, "imagenet", variant)
            baseline = None if variant == "baseline" else TITLES[method]
            yield Entry(row_title(method, variant), "ImageNet", cell, "imagenet", None, baseline)


# The paper names its curvatures (§5.3) but not the scales of its Figures 3 and 5.
CURVATURES = (1 / 3, 0.5, 0.7, 1.0, 1.5, 2.5, 5.0, math.inf)
SCALES = {
    "mocov3_margin": (1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 80.0),
    "simclr_margin": (1.0, 1.0625, 1.125, 1.25, 1.5, 2.0),
}


def _figure_3() -> Iterator[Entry]:
    for method, scales in SCALES.items():
        for data in SMALL_DATA:
            for scale in scales:
                cell = Cell(method, data, "baseline", (scale_change(scale),))
                row = f"{TITLES[method]}, s = {scale:g}"
                yield Entry(row, TITLES[data], cell, data, x=scale)


def _figure_4() -> Iterator[Entry]:
    for method in ("mocov3_margin", "simclr_margin", "byol_curv"):
        for data in SMALL_DATA:
            for curvature in CURVATURES:
                cell = Cell(method, data, "baseline", (curvature_change(curvature),))
                row = f"{TITLES[method]}, c = {curvature:.3g}"
                yield Entry(row, TITLES[data], cell, data, x=curvature)


def _figure_5() -> Iterator[Entry]:
    for data in SMALL_DATA:
        for scale in SCALES["mocov3_margin"]:
            for curvature in CURVATURES:
                changes = (scale_change(scale), curvature_change(curvature))
                cell = Cell("mocov3_margin", data, "baseline", changes)
                row = f"MoCo v3, s = {scale:g}, c = {curvature:.3g}"
                yield Entry(row, TITLES[data], cell, data, x=scale, y=curvature)


def _polarization() -> Iterator[Entry]:
    """SimCLR, debiased and hard negatives, each without and with the regulariser, by Adam."""
    adam = ("optimizer=adam", "method_kwargs.temperature=0.5")
    yield Entry("SimCLR", "CIFAR-10", Cell("simclr_margin", "cifar10", "baseline", adam), "cifar10")
    for variant in ("dp", "debiased", "debiased_dp", "hard", "hard_dp"):
        cell = Cell("simclr_margin", "cifar10", variant)
        yield Entry(TITLES[variant], "CIFAR-10", cell, "cifar10", baseline="SimCLR")


def _polarization_weights() -> Iterator[Entry]:
    for weight in (0.0, 0.1, 1.0, 10.0, 100.0):
        change = f"method_kwargs.polarization.weight={weight:g}"
        cell = Cell("simclr_margin", "cifar10", "dp", (change,))
        yield Entry(f"SimCLR + DP, λ = {weight:g}", "CIFAR-10", cell, "cifar10", x=weight)


# ------------------------------------------------------------------ ours, at the scale of a CPU

STUDY_EPOCHS = 5
"""Length of a run of our own experiments: ten minutes of one core, its probe included."""

STUDY_SCALE = 2.0
"""The scale of positives in our own experiments, where the paper's is 20; chosen by
``scale_search``, on the test images of its one seed."""

RAMPED_SCALE = 5.0
"""The scale that our ramps end at: the better one of ``scale_search``'s two."""

RAMP_EPOCHS = STUDY_EPOCHS / 2


def ramped(scale: float, epochs: float = RAMP_EPOCHS) -> tuple[str, ...]:
    """Return the overrides for a scale that rises from 1 over so many epochs."""
    place = "method_kwargs.schedules.positive_scale"
    return (scale_change(scale), f"{place}.kind=linear", f"{place}.epochs={epochs:g}")


def _scaled(scale: float, changes: tuple[str, ...] = ()) -> Cell:
    """Return MoCo v3 with a scale of positives; 1 is the baseline."""
    if scale == 1.0:
        return Cell("mocov3_margin", "cifar10", "baseline", changes)
    return Cell("mocov3_margin", "cifar10", "pos", (scale_change(scale), *changes))


def _scale_search() -> Iterator[Entry]:
    for scale in (1.0, 1.5, 2.0, 5.0, 20.0):
        row = f"MoCo v3, s = {scale:g}"
        yield Entry(row, "CIFAR-10", _scaled(scale), "cifar10", x=scale)
    for scale in (5.0, 20.0):
        cell = Cell("mocov3_margin", "cifar10", "pos", ramped(scale))
        row = f"MoCo v3, s from 1 to {scale:g} in {RAMP_EPOCHS:g} epochs"
        yield Entry(row, "CIFAR-10", cell, "cifar10", x=scale)


def _study() -> Iterator[Entry]:
    scale = (scale_change(STUDY_SCALE),)
    # Not the paper's scale: rows say so.
    for variant, changes, how in (
        ("baseline", (), ""),
        ("margins", (), ""),
        ("pos", scale, f" (s = {STUDY_SCALE:g})"),
        ("pos_curv", scale, f" (s = {STUDY_SCALE:g})"),
        ("pos", ramped(RAMPED_SCALE), f" (s ramped to {RAMPED_SCALE:g})"),
    ):
        cell = Cell("mocov3_margin", "cifar10", variant, changes)
        baseline = None if variant == "baseline" else "MoCo v3"
        row = row_title("mocov3_margin", variant) + how
        yield Entry(row, "CIFAR-10", cell, "cifar10", baseline=baseline)
    for method in ("simclr_margin", "byol_curv"):
        for variant in CELLS[method]["cifar10"]:
            if (method, "cifar10", variant) in LINEAR_PROBING:
                cell = Cell(method, "cifar10", variant)
                baseline = None if variant == "baseline" else TITLES[method]
                row = row_title(method, variant)
                yield Entry(row, "CIFAR-10", cell, "cifar10", baseline=baseline)


def _pair(name: str, changes: tuple[str, ...] = (), x: float | None = None) -> Iterator[Entry]:
    """Yield MoCo v3 without and with the study's scale, both with some changes."""
    plain = f"MoCo v3, {name}"
    yield Entry(plain, "CIFAR-10", _scaled(1.0, changes), "cifar10", x=x)
    row = f"MoCo v3 + pos. (s = {STUDY_SCALE:g}), {name}"
    cell = _scaled(STUDY_SCALE, changes)
    yield Entry(row, "CIFAR-10", cell, "cifar10", baseline=plain, x=x)


def _budgets() -> Iterator[Entry]:
    """How the difference that a scale makes moves with the number of epochs."""
    for epochs in (2, STUDY_EPOCHS, 2 * STUDY_EPOCHS):
        changes = () if epochs == STUDY_EPOCHS else (f"max_epochs={epochs}",)
        yield from _pair(f"{epochs} epochs", changes, float(epochs))


def _resnet18() -> Iterator[Entry]:
    """The direction with a network of full width; its stem reduces an image of 32 pixels to 8."""
    # A preset may have set the others for a network of its own; null is not handed on.
    network = (
        "backbone=resnet18",
        "++backbone.kwargs.width=null",
        "++backbone.kwargs.stem_stride=null",
    )
    yield from _pair("ResNet-18, 2 epochs", (*network, "max_epochs=2"))


EXPERIMENTS = {
    "table2": Experiment("Attenuating the vanishing gradient (Table 2)", tuple(_table_2())),
    "table3": Experiment("Linear probe (Table 3)", tuple(_table_3())),
    "table4": Experiment("Transfer (Table 4)", tuple(_table_4())),
    "table6": Experiment("ImageNet (Table 6)", tuple(_table_6())),
    "figure3": Experiment(
        "Accuracy against the scale of positives (Figure 3)", tuple(_figure_3()), "s"
    ),
    "figure4": Experiment("Accuracy against the curvature (Figure 4)", tuple(_figure_4()), "c"),
    "figure5": Experiment("Scale and curvature together (Figure 5)", tuple(_figure_5()), "s", "c"),
    "polarization": Experiment("Distance polarization", tuple(_polarization())),
    "polarization_weights": Experiment(
        "Accuracy against the weight of the regulariser", tuple(_polarization_weights()), "λ"
    ),
    "scale_search": Experiment("Accuracy against s at a small budget", tuple(_scale_search()), "s"),
    "study": Experiment("The margins paper's variants at a small budget", tuple(_study())),
    "budgets": Experiment(
        "The effect of s against the length of training", tuple(_budgets()), "epochs"
    ),
    "resnet18": Experiment("The effect of s with ResNet-18", tuple(_resnet18())),
}
"""Name on the command line to table or figure."""
