"""Tables from a file of results alone: means over seeds beside the paper's values."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from reproduce.experiments import Entry
from reproduce.papers import Accuracy
from reproduce.study import Study

METRICS = ("linear_acc1", "knn_acc1")
HEADINGS = {"linear_acc1": "linear, %", "knn_acc1": "kNN, %", "paper": "paper, %"}


@dataclass(frozen=True)
class Measured:
    """What was measured for one entry."""

    entry: Entry
    by_seed: dict[int, dict[str, float]]
    """Seed to figures."""
    baseline: Measured | None = None
    """What this entry is compared with."""

    def accuracy(self, metric: str) -> Accuracy | None:
        """Return mean and standard deviation over seeds; one seed has no deviation."""
        return mean_and_std([figures[metric] for figures in self.by_seed.values()])

    @property
    def seeds_of_both(self) -> list[int]:
        """The seeds that the baseline has too."""
        return sorted(self.by_seed.keys() & self.baseline.by_seed.keys()) if self.baseline else []

    def difference(self, metric: str) -> Accuracy | None:
        """Return mean and deviation of the differences to the baseline, seed by seed."""
        if self.baseline is None:
            return None
        mine, other = self.by_seed, self.baseline.by_seed
        return mean_and_std([mine[s][metric] - other[s][metric] for s in self.seeds_of_both])

    def figures(self) -> dict[str, Accuracy | None]:
        """Return accuracies and differences of both probes, and the paper's accuracy."""
        figures = {}
        for metric in METRICS:
            figures[metric] = self.accuracy(metric)
            figures[f"{metric}_difference"] = self.difference(metric)
        return {**figures, "paper": self.entry.paper}


def mean_and_std(numbers: Sequence[float]) -> Accuracy | None:
    """Return mean and standard deviation of numbers; one number, or a NaN, has no deviation."""
    if not numbers:
        return None
    mean = statistics.mean(numbers)
    has_deviation = len(numbers) > 1 and math.isfinite(mean)
    return Accuracy(mean, statistics.stdev(numbers) if has_deviation else None)


def measured(entries: Iterable[Entry], seeds: Sequence[int], study: Study) -> list[Measured]:
    """Return what the results of a study hold of each entry, in the order of the entries."""
    records = study.recorded()
    items = []
    for entry in entries:
        ids = {seed: study.record(entry.cell, seed, entry.probed_on).id for seed in seeds}
        by_seed = {seed: records[id].figures for seed, id in ids.items() if id in records}
        items.append(Measured(entry, by_seed))
    by_place = {(item.entry.row, item.entry.column): item for item in items}
    return [
        replace(item, baseline=by_place.get((item.entry.baseline or "", item.entry.column)))
        for item in items
    ]


def as_csv(items: Sequence[Measured]) -> str:
    """Return the table as CSV: means, deviations, differences, the paper's values."""
    rows = []
    for item in items:
        row = {"row": item.entry.row, "column": item.entry.column, "seeds": len(item.by_seed)}
        for name, value in item.figures().items():
            row[name], row[f"{name}_std"] = (
                "" if number is None else round(number, 3) for number in value or (None, None)
            )
        rows.append(row)
    file = io.StringIO()
    writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def as_markdown(items: Sequence[Measured]) -> str:
    """Return the table in Markdown: a line for each row and column; no column is empty."""
    names = items[0].figures()
    lines = [["row", "data", "seeds", *(HEADINGS.get(name, "to baseline") for name in names)]]
    for item in items:
        figures = [
            shown(value, signed=name.endswith("_difference"))
            for name, value in item.figures().items()
        ]
        lines.append([item.entry.row, item.entry.column, str(len(item.by_seed)), *figures])
    filled = [place for place, _ in enumerate(lines[0]) if any(line[place] for line in lines[1:])]
    return markdown_of([[line[place] for place in filled] for line in lines], texts=2)


def markdown_of(lines: Sequence[Sequence[str]], texts: int) -> str:
    """Return lines as a table in Markdown; the first is its head, the first columns are texts."""
    rows = ["| " + " | ".join(line) + " |" for line in lines]
    rule = (
        "|" + "|".join("---" if place < texts else "---:" for place in range(len(lines[0]))) + "|"
    )
    return "\n".join([rows[0], rule, *rows[1:]]) + "\n"


def shown(value: Accuracy | None, signed: bool = False) -> str:
    """Return a mean with its deviation as text, nothing for nothing.

    >>> shown(Accuracy(89.413, 0.109)), shown(Accuracy(-0.5), signed=True), shown(None)
    ('89.4 ± 0.1', '-0.5', '')
    """
    if value is None:
        return ""
    mean = f"{value.mean:+.1f}" if signed else f"{value.mean:.1f}"
    return mean if value.std is None else f"{mean} ± {value.std:.1f}"
