"""Print a results file as a table: means and standard deviations over seeds.

python scripts/results_table.py outputs/runs.jsonl
python scripts/results_table.py outputs/runs.jsonl --figures val_acc1 train_loss

A line for each method, data set and variant, and for each of the other settings that differ
between its runs.
"""

import argparse
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from reproduce.tables import markdown_of, mean_and_std, shown

from solo_margins import results

SEEDS = ("seed", "pretraining.seed")
NAMES = ("kind", "method", "data", "variant")


def flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield settings with their full names."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def named(record: results.Record) -> tuple[str, ...]:
    """Return kind, method, data and variant of a run."""
    return tuple(str(getattr(record, name)) for name in NAMES)


def differing(records: Iterable[results.Record]) -> list[str]:
    """Return the settings, seeds apart, that differ between runs of the same names."""
    first: dict[tuple[str, ...], dict[str, Any]] = {}
    found: dict[str, None] = {}
    for record in records:
        settings = dict(flat(record.settings))
        other = first.setdefault(named(record), settings)
        for name in sorted(settings.keys() | other.keys()):
            if name not in SEEDS and settings.get(name) != other.get(name):
                found[name] = None
    return list(found)


def table(records: Iterable[results.Record], figures: list[str] | None = None) -> str:
    """Return runs as a table in Markdown.

    Args:
        records: the runs.
        figures: the quantities to show; by default every accuracy that is not of training images.
    """
    runs = list(results.latest(records).values())
    measured = dict.fromkeys(
        name for run in runs for name, value in run.figures.items() if math.isfinite(value)
    )
    columns = figures or [
        name
        for name in measured
        if name.endswith(("acc1", "recall_at_1")) and not name.startswith("train")
    ]
    settings = differing(runs)
    groups: dict[tuple[str, ...], list[results.Record]] = {}
    for run in runs:
        values = dict(flat(run.settings))
        key = (*named(run), *(str(values.get(name, "")) for name in settings))
        groups.setdefault(key, []).append(run)
    lines = [[*NAMES, *settings, "runs", *columns]]
    for key, members in groups.items():
        cells = []
        for name in columns:
            cells.append(
                shown(mean_and_std([m.figures[name] for m in members if name in m.figures]))
            )
        lines.append([*key, str(len(members)), *cells])
    return markdown_of(lines, texts=len(NAMES) + len(settings))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, help="what results=<file> has written")
    parser.add_argument("--figures", nargs="+", help="what to show (default: all accuracies)")
    arguments = parser.parse_args()
    if not arguments.file.exists():
        sys.exit(f"Error: there is no file {arguments.file}.")
    print(table(results.read(arguments.file), arguments.figures), end="")


if __name__ == "__main__":
    main()
