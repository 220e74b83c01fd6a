"""Reads the accuracies of a run from the files of Lightning's CSV logger."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

# Column of metrics.csv to the classifier it belongs to.
ACCURACIES = {"val_acc1": "online classifier", "val_knn_acc1": "kNN"}


def logged_accuracies(
    folder: Path, notes: list[str], log_dir: Any = None
) -> dict[str, dict[int, float]]:
    """Return the logged accuracies of a run, resumed parts joined, by column and epoch.

    Args:
        folder: the run folder; its logs are in ``logs``.
        notes: receives a message about everything missing or unreadable.
        log_dir: another folder with logs, from the run's settings.
    """
    log_folders = [folder / "logs"]
    if isinstance(log_dir, str):
        log_folders += [folder / log_dir, Path(log_dir)]
    files: dict[Path, Path] = {}
    for log_folder in log_folders:
        parts = sorted(log_folder.glob("version_*/metrics.csv"), key=_version)
        for file in [*parts, *log_folder.glob("metrics.csv")]:
            files.setdefault(file.resolve(), file)
    if not files:
        notes.append(f"{folder} has no logs/version_*/metrics.csv: its accuracies are unknown.")
    joined: dict[str, dict[int, float]] = {}
    for file in files.values():
        for column, values in _columns(file, notes).items():
            # Epochs after the last checkpoint of an interrupted run were trained again.
            earlier = joined.get(column, {})
            kept = {epoch: value for epoch, value in earlier.items() if epoch < min(values)}
            joined[column] = {**kept, **values}
    return joined


def _version(file: Path) -> tuple[int, str]:
    number = re.fullmatch(r"version_(\d+)", file.parent.name)
    return int(number[1]) if number else -1, file.parent.name


def _columns(file: Path, notes: list[str]) -> dict[str, dict[int, float]]:
    columns: dict[str, dict[int, float]] = {}
    unreadable = 0
    try:
        with open(file, newline="", encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                for column in ACCURACIES:
                    if row.get(column):
                        try:
                            epoch, value = int(float(row["epoch"])), float(row[column])
                            columns.setdefault(column, {})[epoch] = value
                        except (KeyError, TypeError, ValueError, OverflowError):
                            unreadable += 1
    except (OSError, ValueError, csv.Error) as reason:
        notes.append(f"{file} cannot be read completely ({' '.join(str(reason).split())}).")
    if unreadable:
        notes.append(f"{file}: {unreadable} accuracies or their epochs are not numbers.")
    return columns
