"""Tables from a file of results alone: means over seeds beside the paper's values."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from solo_margins import results
from solo_margins.papers import Accuracy
from solo_margins.reproduction.experiments import Entry
from solo_margins.reproduction.running import Plan

METRICS = ("linear_acc1", "knn_acc1")


@dataclass(frozen=True)
class Measured:
    """What was measured for one entry."""

    entry: Entry
    by_seed: dict[int, dict[str, float]]
    """Seed to figures."""

    def accuracy(self, metric: str) -> Accuracy | None:
        """Return mean and standard deviation over seeds; one seed has no deviation."""
        return _mean_and_std([figures[metric] for figures in self.by_seed.values()])

    def difference(self, other: Measured, metric: str) -> Accuracy | None:
        """Return mean and deviation of the differences to another entry, seed by seed."""
        shared = sorted(self.by_seed.keys() & other.by_seed.keys())
        return _mean_and_std(
            [self.by_seed[seed][metric] - other.by_seed[seed][metric] for seed in shared]
        )


def _mean_and_std(numbers: Sequence[float]) -> Accuracy | None:
    if not numbers:
        return None
    spread = statistics.stdev(numbers) if len(numbers) > 1 else None
    return Accuracy(statistics.mean(numbers), spread)


def measured(
    entries: Iterable[Entry], seeds: Sequence[int], plan: Plan, records: Iterable[results.Record]
) -> list[Measured]:
    """Return what a file of results holds of each entry, in the order of the entries."""
    done = results.latest(records)
    found = []
    for entry in entries:
        by_seed = {}
        for seed in seeds:
            record = done.get(plan.record(entry.cell, seed, entry.probed_on).id)
            if record is not None:
                by_seed[seed] = record.figures
        found.append(Measured(entry, by_seed))
    return found


def baselines(items: Sequence[Measured]) -> dict[tuple[str, str], Measured]:
    """Return what other rows are compared with, by row and column."""
    return {(item.entry.row, item.entry.column): item for item in items}


def as_rows(items: Sequence[Measured]) -> list[dict[str, Any]]:
    """Return one flat row for each entry: means, deviations, differences, the paper's value."""
    rows = []
    by_place = baselines(items)
    for item in items:
        entry = item.entry
        row: dict[str, Any] = {
            "row": entry.row,
            "column": entry.column,
            "seeds": len(item.by_seed),
        }
        compared = by_place.get((entry.baseline or "", entry.column))
        for metric in METRICS:
            _add(row, metric, item.accuracy(metric))
            gained = item.difference(compared, metric) if compared is not None else None
            _add(row, f"{metric}_difference", gained)
        _add(row, "paper", entry.paper)
        rows.append(row)
    return rows


def _add(row: dict[str, Any], name: str, value: Accuracy | None) -> None:
    row[name] = "" if value is None else round(value.mean, 3)
    row[f"{name}_std"] = "" if value is None or value.std is None else round(value.std, 3)


def as_csv(items: Sequence[Measured]) -> str:
    """Return the table as CSV."""
    rows = as_rows(items)
    file = io.StringIO()
    writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def as_markdown(items: Sequence[Measured]) -> str:
    """Return the table in Markdown: a line for each row and column; no column is empty."""
    names = {"linear_acc1": "linear, %", "knn_acc1": "kNN, %"}
    head = ["row", "data", "seeds"]
    for metric in METRICS:
        head += [names[metric], "to baseline"]
    lines = [[*head, "paper, %"]]
    by_place = baselines(items)
    for item in items:
        entry = item.entry
        compared = by_place.get((entry.baseline or "", entry.column))
        cells = [entry.row, entry.column, str(len(item.by_seed))]
        for metric in METRICS:
            cells.append(shown(item.accuracy(metric)))
            gained = item.difference(compared, metric) if compared is not None else None
            cells.append(shown(gained, signed=True))
        lines.append([*cells, shown(entry.paper)])
    filled = [place for place, _ in enumerate(lines[0]) if any(line[place] for line in lines[1:])]
    rows = ["| " + " | ".join(line[place] for place in filled) + " |" for line in lines]
    rule = "|" + "|".join("---" if place < 2 else "---:" for place in filled) + "|"
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
