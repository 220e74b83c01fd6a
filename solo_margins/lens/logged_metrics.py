"""Reads the accuracies of a run from the files of Lightning's CSV logger."""

import csv
from pathlib import Path

from solo_margins.files import read_lines

# Column of metrics.csv to the classifier it belongs to.
ACCURACIES = {"val_acc1": "online classifier", "val_knn_acc1": "kNN"}


def logged_accuracies(folder: Path, notes: list[str]) -> dict[str, dict[int, float]]:
    """Return the logged accuracies of a run, resumed parts joined, by column and epoch.

    Args:
        folder: the run folder.
        notes: receives a message about everything missing or unreadable.
    """
    # By length first: version_10 comes after version_2.
    files = sorted(
        folder.glob("logs/version_*/metrics.csv"), key=lambda file: (len(str(file)), file)
    )
    if not files:
        notes.append(f"{folder} has no logs/version_*/metrics.csv: its accuracies are unknown.")
    joined: dict[str, dict[int, float]] = {}
    for file in files:
        for column, values in _columns(file, notes).items():
            # Epochs after the last checkpoint of an interrupted run were trained again.
            earlier = joined.get(column, {})
            kept = {epoch: value for epoch, value in earlier.items() if epoch < min(values)}
            joined[column] = {**kept, **values}
    return joined


def _columns(file: Path, notes: list[str]) -> dict[str, dict[int, float]]:
    columns: dict[str, dict[int, float]] = {}
    names: list[str] = []

    def add(line: bytes) -> None:
        cells = next(csv.reader([line.decode()]))
        row = dict(zip(names, cells, strict=False))
        names.extend(cells if not names else ())
        for column in filter(row.get, ACCURACIES):
            columns.setdefault(column, {})[int(float(row["epoch"]))] = float(row[column])

    try:
        notes.extend(read_lines(file, add)[1])
    except (OSError, csv.Error) as reason:
        notes.append(f"{file} cannot be read completely ({reason}).")
    return columns
