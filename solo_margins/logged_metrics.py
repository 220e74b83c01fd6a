"""Accuracies that a run has logged, from the files of Lightning's CSV logger."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

# Columns of metrics.csv, and what they are of.
ACCURACIES = {"val_acc1": "online classifier", "val_knn_acc1": "kNN"}


def logged_accuracies(
    folder: Path, notes: list[str], log_dir: Any = None
) -> dict[str, dict[int, float]]:
    """Return the accuracies of all parts that a run was trained in, by column and epoch.

    Args:
        folder: of the run; its logs are in ``logs``.
        notes: gets a sentence for everything that is missing or cannot be read.
        log_dir: another folder with logs, which a run's ``args.json`` may name.
    """
    places = [folder / "logs"]
    if isinstance(log_dir, str):
        places += [folder / log_dir, Path(log_dir)]
    files: dict[Path, Path] = {}
    for place in places:
        parts = sorted(place.glob("version_*/metrics.csv"), key=_version)
        for file in [*parts, *place.glob("metrics.csv")]:
            files.setdefault(file.resolve(), file)
    if not files:
        notes.append(f"{folder} holds no logs/version_*/metrics.csv: accuracies are not known.")
    joined: dict[str, dict[int, float]] = {}
    for file in files.values():
        for column, values in _columns(file, notes).items():
            # What an interrupted run logged after its last checkpoint was trained again.
            earlier = joined.get(column, {})
            kept = {epoch: value for epoch, value in earlier.items() if epoch < min(values)}
            joined[column] = {**kept, **values}
    return joined


def _version(file: Path) -> tuple[int, str]:
    number = re.fullmatch(r"version_(\d+)", file.parent.name)
    return int(number[1]) if number else -1, file.parent.name


def _columns(file: Path, notes: list[str]) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    unreadable = 0
    try:
        with open(file, newline="", encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                for column in ACCURACIES:
                    if row.get(column):
                        try:
                            epoch, value = int(float(row["epoch"])), float(row[column])
                            found.setdefault(column, {})[epoch] = value
                        except (KeyError, TypeError, ValueError, OverflowError):
                            unreadable += 1
    except (OSError, ValueError, csv.Error) as reason:
        notes.append(f"{file} cannot be read to its end ({' '.join(str(reason).split())}).")
    if unreadable:
        notes.append(f"{file}: {unreadable} accuracies or their epochs are not numbers.")
    return found
