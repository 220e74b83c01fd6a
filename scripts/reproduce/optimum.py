"""The best scale of each length of training, and what accuracy follows: from the maps of the law.

``docs/results/law/protocol.md`` defines both, under "Comparisons".
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reproduce import law
from reproduce.experiments import Entry
from reproduce.study import Study
from reproduce.tables import METRICS, Measured, markdown_of, measured

NEIGHBOURS = 2  # on either side of the scale with the highest mean
SAMPLES = 2000
# MoCo v3 in the margins paper: ResNet-18, batch 256, 200 epochs of CIFAR-10 (its Table 3).
PAPER_STEPS, PAPER_SCALE = 39_000, 20
# Figures at the end of a run that may explain its accuracy.
ENDS = ("alignment", "uniformity", "pull", "push", "positive_angle", "q")
# Whether the runs that are compared were chosen by all seeds, or by those that are not compared.
COMPARED = ("chosen by all seeds", "chosen by the others")

Accuracies = Mapping[float, Sequence[float] | np.ndarray]
"""Scales to the accuracies of their runs."""


@dataclass(frozen=True)
class Optimum:
    """The best scale of one length of training.

    Attributes:
        title: method, temperature and network.
        steps: the length of training.
        seeds: how many runs every scale has.
        highest: the scale with the highest mean.
        scale: the best scale by the fit.
        samples: the best scales of bootstrap samples.
    """

    title: str
    steps: int
    seeds: int
    highest: float
    scale: float
    samples: np.ndarray

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the best scale."""
        low, high = np.exp(np.quantile(np.log(self.samples), (0.025, 0.975)))
        return float(low), float(high)


def best_scale(accuracies: Accuracies) -> float:
    """Return where a quadratic in ln s, fitted around the highest mean, has its maximum.

    Where it has none between the smallest and the largest scale: the end of the fitted scales with
    the higher fit.

    >>> around = {s: [50 - math.log(s / 0.7) ** 2] for s in (0.25, 0.5, 0.7, 1, 1.4, 2, 5)}
    >>> round(best_scale(around), 3)
    0.7
    >>> round(best_scale({s: [s] for s in (0.25, 0.5, 1)}), 3)
    1.0
    """
    scales = sorted(accuracies)
    means = [np.mean(accuracies[scale]) for scale in scales]
    highest = int(np.argmax(means))
    nearest = scales[max(0, highest - NEIGHBOURS) : highest + NEIGHBOURS + 1]
    x = [math.log(scale) for scale in nearest for _ in accuracies[scale]]
    y = [accuracy for scale in nearest for accuracy in accuracies[scale]]
    curvature, slope, constant = np.polyfit(x, y, 2)
    if curvature < 0:
        place = -slope / (2 * curvature)
        if math.log(scales[0]) <= place <= math.log(scales[-1]):
            return math.exp(place)
    ends = min(x), max(x)
    fitted = [curvature * end**2 + slope * end + constant for end in ends]
    return math.exp(ends[int(np.argmax(fitted))])


def bootstrap(accuracies: Accuracies, samples: int = SAMPLES, seed: int = 0) -> np.ndarray:
    """Return the best scales of samples that draw runs within each scale, with replacement."""
    random = np.random.default_rng(seed)
    return np.array(
        [
            best_scale({s: random.choice(runs, len(runs)) for s, runs in accuracies.items()})
            for _ in range(samples)
        ]
    )


def rise(shorter: Optimum, longer: Optimum) -> tuple[float, float, float]:
    """Return by what factor the best scale grows from one length to another, and its interval."""
    ratios = np.log(longer.samples) - np.log(shorter.samples)
    low, high = np.quantile(ratios, (0.025, 0.975))
    return longer.scale / shorter.scale, math.exp(low), math.exp(high)


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Spearman's correlation: that of the ranks, where equal numbers share a rank.

    >>> round(rank_correlation([1, 2, 3, 4], [10, 30, 20, 40]), 6)
    0.8
    >>> rank_correlation([1, 1, 2, 2], [5, 5, 9, 9])
    1.0
    """
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def _ranks(numbers: Sequence[float]) -> np.ndarray:
    _, place, count = np.unique(numbers, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[place]


def _groups(entries: Iterable[Entry], study: Study) -> dict[tuple[str, int], list[Measured]]:
    """Return what was measured, by method, temperature and network, and by steps."""
    groups: dict[tuple[str, int], list[Measured]] = {}
    for item in measured(entries, study):
        # "MoCo v3, τ = 0.1, 1,053 steps, twice as wide, s = 0.5": the scale stands last.
        named = item.entry.row.rpartition(", s = ")[0]
        steps = law.steps_of(item.entry.cell)
        title = named.replace(f", {steps:,} steps", "")
        groups.setdefault((title, steps), []).append(item)
    return groups


def _common_seeds(items: Iterable[Measured]) -> list[int]:
    """Return the seeds that all rows have: one that only some have would favour or harm these."""
    return sorted(set.intersection(*(set(item.by_seed) for item in items)))


def _map_entries() -> list[Entry]:
    names = ("law_map", "law_map_simclr", "law_map_long", "law_wide")
    return [entry for name in names for entry in law.EXPERIMENTS[name].entries]


def _complete(
    entries: Iterable[Entry], study: Study
) -> Iterator[tuple[str, int, dict[float, list[float]]]]:
    """Yield title, steps and accuracies of the maps whose scales have two common seeds or more."""
    for (title, steps), items in _groups(entries, study).items():
        seeds = _common_seeds(items)
        if len(seeds) >= 2:
            accuracies = {
                float(item.entry.x or 0): [item.by_seed[seed]["linear_acc1"] for seed in seeds]
                for item in items
            }
            yield title, steps, accuracies


def optima(study: Study) -> list[Optimum]:
    """Return the best scale of every length whose map is complete with at least two seeds."""
    return [
        Optimum(
            title,
            steps,
            len(next(iter(accuracies.values()))),
            max(accuracies, key=lambda scale: float(np.mean(accuracies[scale]))),
            best_scale(accuracies),
            # Draws of their own for every length: they are compared.
            bootstrap(accuracies, seed=steps),
        )
        for title, steps, accuracies in _complete(_map_entries(), study)
    ]


def best_of_moco(study: Study) -> dict[str, float]:
    """Return the best scale of MoCo v3, to two digits, by length, where schedules are tried.

    Only a map with all of its seeds counts: the choice must not move once runs depend on it.
    """
    lengths = {law.steps_of_length(name): name for name in law.lengths_of_schedules()}
    entries = [e for name in ("law_map", "law_map_long") for e in law.EXPERIMENTS[name].entries]
    return {
        lengths[steps]: float(f"{best_scale(accuracies):.2g}")
        for _, steps, accuracies in _complete(entries, study)
        if steps in lengths and len(accuracies[1]) == len(law.map_seeds(lengths[steps]))
    }


def correlations(study: Study) -> list[list[str]]:
    """Return the rank correlations of accuracy with the scale and with figures at the end."""
    lines = [["runs", "number", "s", *ENDS]]
    by_title: dict[str, list[list[dict[str, float]]]] = {}
    groups = _groups(_map_entries(), study)
    for (title, steps), items in groups.items():
        runs = [
            {**figures, "s": float(item.entry.x or 0)}
            for item in items
            for figures in item.by_seed.values()
        ]
        if len(runs) >= 2 * len(items):
            lines.append([f"{title}, {steps:,} steps", str(len(runs)), *_correlated(runs)])
            by_title.setdefault(title, []).append(runs)
    everything = []
    for title, lengths in by_title.items():
        together = [run for runs in lengths for run in runs]
        everything += together
        if len(lengths) > 1:
            lines.append([f"{title}, all lengths", str(len(together)), *_correlated(together)])
    lines.append(["all", str(len(everything)), *_correlated(everything)])
    return lines


def _correlated(runs: Sequence[Mapping[str, float]]) -> list[str]:
    accuracies = [run["linear_acc1"] for run in runs]
    cells = []
    for name in ("s", *ENDS):
        values = [run[name] for run in runs if name in run]
        # A figure that is missing or the same everywhere has no rank.
        if len(values) == len(runs) and len(set(values)) > 1:
            cells.append(f"{rank_correlation(values, accuracies):+.2f}")
        else:
            cells.append("")
    return cells


def chosen_by_q(study: Study) -> list[list[str]]:
    """Return how good the scale with the highest q is, which needs no labels.

    q is the probability that the loss gives to the positive; its formula does not contain s.
    """
    head = ["runs", "steps", "seeds", "s with the highest q", "s with the highest accuracy"]
    lines = [[*head, "linear, to s = 1", "linear, to the best s", "kNN, to s = 1"]]
    entries = [*_map_entries(), *law.EXPERIMENTS["law_temperatures"].entries]
    for (title, steps), items in sorted(_groups(entries, study).items()):
        seeds = _common_seeds(items)
        if len(seeds) < 2 or not all(len(item.values("q")) == len(item.by_seed) for item in items):
            continue
        by_scale = {_scale(item): item for item in items}
        by_q, best = (
            max(by_scale, key=lambda scale: _mean(by_scale[scale], figure, seeds))
            for figure in ("q", METRICS[0])
        )
        line = [title, f"{steps:,}", str(len(seeds)), f"{by_q:g}", f"{best:g}"]
        for other, metric in ((1, METRICS[0]), (best, METRICS[0]), (1, METRICS[1])):
            gain = _mean(by_scale[by_q], metric, seeds) - _mean(by_scale[other], metric, seeds)
            line.append(f"{gain:+.1f}")
        lines.append(line)
    return lines


def best_against_best(study: Study) -> list[list[str]]:
    """Return how the best scale at its best temperature compares with s = 1 at its own.

    The best of many is favoured by chance. So each seed is compared a second time, with the two
    that the other seeds choose.
    """
    head = ["method", "steps", "seeds", "best with s = 1", "best with another s"]
    lines = [[*head, *(f"{name}: {how}" for name in ("linear", "kNN") for how in COMPARED)]]
    for (method, steps), items in _of_all_temperatures(study).items():
        seeds = _common_seeds(items)
        if len(seeds) < 2:
            continue
        ones = [item for item in items if _scale(item) == 1]
        others = [item for item in items if _scale(item) != 1]
        pairs = {seed: _best_pair(ones, others, {*seeds} - {seed}) for seed in seeds}
        one, other = _best_pair(ones, others, seeds)
        line = [method, f"{steps:,}", str(len(seeds)), _named(one), _named(other)]
        for metric in METRICS:
            together = [_gain(one, other, seed, metric) for seed in seeds]
            apart = [_gain(*pairs[seed], seed, metric) for seed in seeds]
            line += [f"{np.mean(gains):+.1f} ({_listed(gains)})" for gains in (together, apart)]
        lines.append(line)
    return lines


def _of_all_temperatures(study: Study) -> dict[tuple[str, int], list[Measured]]:
    """Return what was measured at several temperatures, by method and steps."""
    names = ("law_map_simclr", "law_temperatures")
    entries = [entry for name in names for entry in law.EXPERIMENTS[name].entries]
    groups: dict[tuple[str, int], list[Measured]] = {}
    for item in measured(entries, study):
        cell = item.entry.cell
        place = law.METHODS[cell.method]["title"], law.steps_of(cell)
        groups.setdefault(place, []).append(item)
    return groups


def _scale(item: Measured) -> float:
    return float(law.value_of(item.entry.cell, law.SCALE))


def _named(item: Measured) -> str:
    return f"s = {_scale(item):g}, τ = {law.value_of(item.entry.cell, law.TEMPERATURE)}"


def _best_pair(
    ones: Sequence[Measured], others: Sequence[Measured], seeds: Collection[int]
) -> tuple[Measured, Measured]:
    """Return the best run of s = 1 and the best of the others, by the mean over some seeds."""

    def accuracy(item: Measured) -> float:
        return _mean(item, METRICS[0], seeds)

    return max(ones, key=accuracy), max(others, key=accuracy)


def _mean(item: Measured, figure: str, seeds: Collection[int]) -> float:
    return float(np.mean([item.by_seed[seed][figure] for seed in seeds]))


def _gain(one: Measured, other: Measured, seed: int, metric: str) -> float:
    return other.by_seed[seed][metric] - one.by_seed[seed][metric]


def _listed(gains: Iterable[float]) -> str:
    return ", ".join(f"{gain:+.1f}" for gain in gains)


def write(study: Study, base: Path) -> str:
    """Write ``<base>.md`` and ``<base>.png`` and return the text.

    Raises:
        ValueError: no map is complete.
    """
    found = optima(study)
    if not found:
        raise ValueError("no map of the law is complete: run law_map or law_map_simclr first.")
    head = ["map", "steps", "seeds", "s with the highest mean", "best s by the fit"]
    lines = [[*head, "95 % interval", "times that of the next shorter length"]]
    shorter: dict[str, Optimum] = {}
    for optimum in sorted(found, key=lambda optimum: (optimum.title, optimum.steps)):
        low, high = optimum.interval
        grown = ""
        if optimum.title in shorter:
            factor, least, most = rise(shorter[optimum.title], optimum)
            grown = f"{factor:.2f} [{least:.2f}, {most:.2f}]"
        shorter[optimum.title] = optimum
        line = [optimum.title, f"{optimum.steps:,}", str(optimum.seeds), f"{optimum.highest:g}"]
        lines.append([*line, f"{optimum.scale:.2f}", f"{low:.2f} to {high:.2f}", grown])
    text = (
        f"# The best scale of each length\n\n{markdown_of(lines, texts=1)}\n"
        "# What accuracy follows\n\nSpearman's rank correlations of the linear probe with the scale"
        f" and with what the lens saw at the end.\n\n{markdown_of(correlations(study), texts=1)}"
    )
    compared = best_against_best(study)
    if len(compared) > 1:
        text += (
            "\n# Best against best\n\nHow far the best scale at its best temperature is above s = 1"
            f" at its own, in points: the mean and every seed.\n\n{markdown_of(compared, texts=1)}"
        )
    by_q = chosen_by_q(study)
    if len(by_q) > 1:
        text += (
            "\n# A scale chosen without labels\n\nThe scale whose mean of q at the end is highest; "
            f"differences of means, in points.\n\n{markdown_of(by_q, texts=1)}"
        )
    base.with_suffix(".md").write_text(text)
    _draw(found, base.with_suffix(".png"))
    return text


def _draw(found: Sequence[Optimum], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(7.5, 5))
    titles = dict.fromkeys(optimum.title for optimum in found)
    for number, title in enumerate(titles):
        of_title = [optimum for optimum in found if optimum.title == title]
        # Side by side, where lengths are equal.
        steps = [optimum.steps * 1.03**number for optimum in of_title]
        scales = [optimum.scale for optimum in of_title]
        below = [optimum.scale - optimum.interval[0] for optimum in of_title]
        above = [optimum.interval[1] - optimum.scale for optimum in of_title]
        errors: Any = np.maximum([below, above], 0)
        axis.errorbar(steps, scales, errors, marker="o", capsize=3, label=title)
    axis.scatter(
        [PAPER_STEPS],
        [PAPER_SCALE],
        marker="*",
        s=120,
        color="black",
        label="the margins paper, CIFAR-10, ResNet-18",
    )
    axis.axhline(1, color="black", linewidth=0.8)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("steps of training")
    axis.set_ylabel("best positive scale s, with its 95 % interval")
    axis.set_title("Which scale is best, by the length of training")
    axis.grid(alpha=0.3)
    axis.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
