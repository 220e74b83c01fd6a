"""Tables from a file of results alone: means over seeds beside the paper's values."""

from __future__ import annotations

import csv
import io
import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from reproduce.experiments import Entry
from reproduce.papers import Accuracy
from reproduce.study import Study

METRICS = ("linear_acc1", "knn_acc1")
HEADINGS = {
    "linear_acc1": "linear, %",
    "knn_acc1": "kNN, %",
    "paper": "paper, %",
    "q": "q",
    "effective_scale": "pull over that without margins",
    "weight_norm": "norm of the weights",
    "effective_rate": "effective rate",
    "turn": "turn in a step",
    "alignment": "alignment",
    "uniformity": "uniformity",
    "pull": "pull",
    "push": "push",
    "positive_angle": "angle of positives",
    "effective_rank": "RankMe",
}
# Quantiles 0.975 of Student's t, by degrees of freedom: seeds less one.
T_QUANTILES = (math.nan, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)


class Difference(NamedTuple):
    """The differences to a baseline, seed by seed.

    Attributes:
        mean: of the differences.
        low: lower end of the 95 % interval of the mean, by Student's t; NaN for one seed.
        high: its upper end.
        p: two-sided, of the exact test that flips signs; NaN for one seed.
    """

    mean: float
    low: float
    high: float
    p: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Difference | None:
        """Return mean, interval and p of differences; nothing for nothing.

        >>> Difference.of([1.0, 2.0, 3.0, 2.0, 1.0, 3.0])
        Difference(mean=2.0, low=1.0612, high=2.9388, p=0.03125)
        """
        value = mean_and_std(values)
        if value is None:
            return None
        if value.std is None or len(values) > len(T_QUANTILES):
            return cls(value.mean, math.nan, math.nan, math.nan)
        half = T_QUANTILES[len(values) - 1] * value.std / math.sqrt(len(values))
        low, high = (round(value.mean + side * half, 4) for side in (-1, 1))
        return cls(value.mean, low, high, sign_flip_p(values))


def sign_flip_p(values: Sequence[float]) -> float:
    """Return how many patterns of signs give a sum at least as far from 0, as a share of all.

    >>> sign_flip_p([1.0] * 6), sign_flip_p([1.0, -1.0])
    (0.03125, 1.0)
    """
    patterns = itertools.product((1, -1), repeat=len(values))
    observed = abs(sum(values)) - 1e-9
    sums = [abs(sum(s * v for s, v in zip(signs, values, strict=True))) for signs in patterns]
    return sum(one >= observed for one in sums) / len(sums)


@dataclass(frozen=True)
class Measured:
    """What was measured for one entry."""

    entry: Entry
    by_seed: dict[int, dict[str, float]]
    """Seed to figures."""
    baseline: Measured | None = None
    """What this entry is compared with."""

    def values(self, figure: str) -> list[float]:
        """Return a figure of every seed that has it."""
        return [figures[figure] for figures in self.by_seed.values() if figure in figures]

    def accuracy(self, metric: str) -> Accuracy | None:
        """Return mean and standard deviation over seeds; one seed has no deviation."""
        return mean_and_std(self.values(metric))

    def differences(self, metric: str) -> list[float]:
        """Return the differences to the baseline, one for each seed that both have."""
        if self.baseline is None:
            return []
        mine, other = self.by_seed, self.baseline.by_seed
        return [mine[s][metric] - other[s][metric] for s in sorted(mine.keys() & other.keys())]

    def difference(self, metric: str) -> Difference | None:
        """Return what the differences to the baseline say."""
        return Difference.of(self.differences(metric))


def mean_and_std(numbers: Sequence[float]) -> Accuracy | None:
    """Return mean and standard deviation of numbers; one number, or a NaN, has no deviation."""
    if not numbers:
        return None
    mean = statistics.mean(numbers)
    has_deviation = len(numbers) > 1 and math.isfinite(mean)
    return Accuracy(mean, statistics.stdev(numbers) if has_deviation else None)


def measured(entries: Iterable[Entry], study: Study) -> list[Measured]:
    """Return what the results of a study hold of each entry, in the order of the entries.

    An entry without seeds of its own has all those of the results.
    """
    records = study.recorded()
    seeds = {record.settings.get("seed") for record in records.values()}
    recorded_seeds = sorted(seed for seed in seeds if seed is not None)
    items = []
    for entry in entries:
        ids = {
            seed: study.record(entry.cell, seed, entry.probed_on).id
            for seed in entry.seeds or recorded_seeds
        }
        by_seed = {seed: records[id].figures for seed, id in ids.items() if id in records}
        items.append(Measured(entry, by_seed))
    by_place = {(item.entry.row, item.entry.column): item for item in items}
    return [
        replace(item, baseline=by_place.get((item.entry.baseline or "", item.entry.column)))
        for item in items
    ]


def as_csv(items: Sequence[Measured], figures: Sequence[str] = ()) -> str:
    """Return the table as CSV: means, deviations, differences, the paper's values."""
    rows = []
    for item in items:
        row: dict[str, Any] = {"row": item.entry.row, "column": item.entry.column}
        row["seeds"] = len(item.by_seed)
        for metric in METRICS:
            row |= _numbers(("", "_std"), metric, item.accuracy(metric))
            ends = ("_difference", "_difference_low", "_difference_high", "_difference_p")
            row |= _numbers(ends, metric, item.difference(metric))
        for name in figures:
            row |= _numbers(("", "_std"), name, item.accuracy(name))
        rows.append({**row, **_numbers(("", "_std"), "paper", item.entry.paper)})
    file = io.StringIO()
    writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _numbers(
    ends: Sequence[str], name: str, values: Sequence[float | None] | None
) -> dict[str, Any]:
    """Return numbers by the names of their columns; what is missing is empty."""
    known = (None if v is None or math.isnan(v) else v for v in values or [None] * len(ends))
    return {
        f"{name}{end}": "" if v is None else f"{v:.5g}" for end, v in zip(ends, known, strict=True)
    }


def as_markdown(items: Sequence[Measured], figures: Sequence[str] = ()) -> str:
    """Return the table in Markdown: a line for each row and column; no column is empty."""
    head = ["row", "data", "seeds"]
    for metric in METRICS:
        head += [HEADINGS[metric], "to baseline [95 %]", "p"]
    lines = [[*head, *(HEADINGS.get(name, name) for name in (*figures, "paper"))]]
    for item in items:
        line = [item.entry.row, item.entry.column, str(len(item.by_seed))]
        for metric in METRICS:
            line.append(shown(item.accuracy(metric)))
            line += shown_difference(item.difference(metric))
        # Seeds hardly differ in these; the CSV has their deviations.
        means = [item.accuracy(name) for name in figures]
        line += ["" if value is None else f"{value.mean:.3g}" for value in means]
        lines.append([*line, shown(item.entry.paper)])
    filled = [place for place, _ in enumerate(lines[0]) if any(line[place] for line in lines[1:])]
    return markdown_of([[line[place] for place in filled] for line in lines], texts=2)


def markdown_of(lines: Sequence[Sequence[str]], texts: int) -> str:
    """Return lines as a table in Markdown; the first is its head, the first columns are texts."""
    rows = ["| " + " | ".join(line) + " |" for line in lines]
    rule = (
        "|" + "|".join("---" if place < texts else "---:" for place in range(len(lines[0]))) + "|"
    )
    return "\n".join([rows[0], rule, *rows[1:]]) + "\n"


def shown(value: Accuracy | None) -> str:
    """Return a mean with its deviation as text, nothing for nothing.

    >>> shown(Accuracy(89.413, 0.109)), shown(Accuracy(89.413)), shown(None)
    ('89.4 ± 0.1', '89.4', '')
    """
    return "" if value is None else " ± ".join(f"{x:.1f}" for x in value if x is not None)


def shown_difference(value: Difference | None) -> tuple[str, str]:
    """Return a difference with its interval, and p, as texts; nothing for nothing.

    >>> shown_difference(Difference(1.52, 0.2, 2.84, 0.03125))
    ('+1.5 [+0.2, +2.8]', '0.031')
    """
    if value is None:
        return "", ""
    if math.isnan(value.p):
        return f"{value.mean:+.1f}", ""
    return f"{value.mean:+.1f} [{value.low:+.1f}, {value.high:+.1f}]", f"{value.p:.3f}"
