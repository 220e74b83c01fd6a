"""Runs as a report needs them: observations, settings, accuracies, and what is amiss."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from solo_margins.checkpoint_settings import read_settings
from solo_margins.lens import records
from solo_margins.lens.records import LensRun
from solo_margins.losses import Margins
from solo_margins.losses.margins import FIELDS

ACCURACIES = {"val_acc1": "online classifier", "val_knn_acc1": "kNN"}
"""Columns of ``metrics.csv`` that are drawn, and their names."""


NUMBERED = re.compile(r"run-[0-9a-f]{8}")
"""How the runner calls the folder of a run that the user has not named."""


@dataclass
class ReportedRun:
    """All that a report shows of a run."""

    folder: Path
    label: str
    lens: LensRun = field(default_factory=LensRun)
    settings: dict[str, Any] = field(default_factory=dict)
    """Those of ``args.json``, by their full names such as ``optimizer.lr``."""
    accuracies: dict[str, dict[int, float]] = field(default_factory=dict)
    """Column of ``metrics.csv`` to epoch to value."""
    notes: list[str] = field(default_factory=list)
    """A sentence for everything that is missing or could not be read."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing of the run can be shown."""
        lens = self.lens
        return not (
            lens.header or lens.observations or lens.warnings or self.settings or self.accuracies
        )

    def described(self, key: str) -> str:
        """Return ``method``, ``data``, … from what the lens wrote, else from the settings."""
        other = {"data": ("data.name", "data.dataset")}.get(key, (key,))
        found = [self.lens.header.get(key), *(self.settings.get(name) for name in other)]
        return next((shown(value) for value in found if value not in (None, "")), "–")

    @property
    def other_name(self) -> str:
        """The name in the settings, or the folder's where that name is the label already."""
        name = self.described("name")
        return self.folder.name if self.label == name else name

    @property
    def temperature(self) -> float | None:
        """The temperature; None where the method has none, because it has no negatives."""
        if "temperature" in self.lens.header:
            return _number(self.lens.header["temperature"])
        return _number(self.settings.get("method_kwargs.temperature"))

    def margins(self) -> Margins | None:
        """Return the margins that were last in use, or None if they are not known.

        Raises:
            ValueError: what was written is no margins.
        """
        known = {
            name: self.settings[f"method_kwargs.margins.{name}"]
            for name in FIELDS
            if f"method_kwargs.margins.{name}" in self.settings
        }
        header = self.lens.header.get("margins")
        known.update(header if isinstance(header, Mapping) else {})
        if self.lens.observations:
            known.update(self.lens.observations[-1].margins)
        # Later versions may know other settings, and JSON has no infinity but a word for it.
        given: dict[str, Any] = {
            name: math.inf if value in ("inf", ".inf") else value
            for name, value in known.items()
            if name in FIELDS and value is not None
        }
        return Margins(**given) if known else None

    def band(self) -> tuple[float, float] | None:
        """Return between which distances the run penalises pairs, or None where it does not."""
        given = self.lens.header.get("polarization")
        if not isinstance(given, Mapping):
            given = {
                name: self.settings.get(f"method_kwargs.polarization.{name}")
                for name in ("weight", "lower", "upper")
            }
        weight, lower, upper = (_number(given.get(key)) for key in ("weight", "lower", "upper"))
        # A weight that is scheduled may begin at 0.
        penalised = any(seen.scalars.get("polarization_loss") for seen in self.lens.observations)
        if lower is None or upper is None or not (weight or penalised):
            return None
        return lower, upper


def _number(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None


def shown(value: Any) -> str:
    """Return a setting as a reader expects it."""
    if isinstance(value, float):
        return "∞" if value == math.inf else f"{value:.6g}"
    if isinstance(value, (dict, list)):
        return str(value)
    return "–" if value is None else str(value)


def load_runs(folders: Sequence[Path]) -> tuple[list[ReportedRun], list[str]]:
    """Return the runs of which something can be shown, and a sentence for all that is amiss."""
    notes: list[str] = []
    distinct: dict[Path, Path] = {}
    for folder in folders:
        if distinct.setdefault(folder.resolve(), folder) is not folder:
            notes.append(f"{folder} was named more than once and is shown once.")
    runs = [
        _load(folder, label)
        for folder, label in zip(distinct.values(), labels(distinct), strict=True)
    ]
    for run in runs:
        notes.extend(run.notes)
    runs = [run for run in runs if not run.is_empty]
    _use_names_for_numbers(runs)
    methods = sorted({run.described("method") for run in runs} - {"–"})
    if len(methods) > 1:
        notes.append(
            f"The runs are of different methods ({', '.join(methods)}): their losses and gradients "
            "are not on one scale."
        )
    return runs, notes


def _use_names_for_numbers(runs: Sequence[ReportedRun]) -> None:
    """Label a run whose folder is but a number by its name, where no other run has that name."""
    names = [run.described("name") for run in runs]
    for run, name in zip(runs, names, strict=True):
        if NUMBERED.fullmatch(run.label) and name != "–" and names.count(name) == 1:
            run.label = name


def labels(folders: Iterable[Path]) -> list[str]:
    """Return the end of each path, with as many folders as tell it from the others.

    Example:
        >>> labels([Path("/runs/a/one"), Path("/runs/b/one"), Path("/runs/b/two")])
        ['a/one', 'b/one', 'two']
    """
    parts = [folder.parts for folder in folders]
    found = []
    for own in parts:
        length = 1
        while length < len(own) and sum(own[-length:] == other[-length:] for other in parts) > 1:
            length += 1
        found.append("/".join(own[-length:]))
    return found


def _load(folder: Path, label: str) -> ReportedRun:
    run = ReportedRun(folder, label)
    if not folder.is_dir():
        run.notes.append(f"{folder} is no folder of a run and is left out.")
        return run
    run.settings = _settings(folder, run.notes)
    run.accuracies = logged_accuracies(folder, run.notes)
    try:
        run.lens = records.read(folder)
    except FileNotFoundError:
        run.notes.append(f"{folder} holds no {records.FILE}: the lens was not on in this run.")
    except OSError as reason:
        run.notes.append(f"{folder / records.FILE} cannot be read ({reason.strerror}).")
    else:
        run.notes.extend(run.lens.problems)
        if not run.lens.observations:
            run.notes.append(f"{folder / records.FILE} holds no observation.")
    return run


def _settings(folder: Path, notes: list[str]) -> dict[str, Any]:
    try:
        found = read_settings(folder)
        if found is not None:
            return flattened(OmegaConf.to_container(found))
    except ValueError as reason:
        notes.append(str(reason))
    except Exception as reason:
        # An interpolation or a key that OmegaConf has no form for: of its own kinds of errors.
        notes.append(f"{folder / 'args.json'} cannot be read ({str(reason).splitlines()[0]}).")
    else:
        notes.append(f"{folder} holds no args.json: its settings are not known.")
    return {}


def flattened(settings: Any, place: str = "") -> dict[str, Any]:
    """Return nested settings by their full names.

    Example:
        >>> flattened({"optimizer": {"lr": 0.1}, "augmentations": [{"crop_size": 32}]})
        {'optimizer.lr': 0.1, 'augmentations[0].crop_size': 32}
    """
    if isinstance(settings, dict) and settings:
        items = [
            (f"{place}.{key}" if place else str(key), value) for key, value in settings.items()
        ]
    elif isinstance(settings, list) and any(isinstance(value, (dict, list)) for value in settings):
        items = [(f"{place}[{number}]", value) for number, value in enumerate(settings)]
    else:
        return {place: settings}
    return {name: value for key, part in items for name, value in flattened(part, key).items()}


def logged_accuracies(folder: Path, notes: list[str]) -> dict[str, dict[int, float]]:
    """Return the accuracies of all parts that a run was trained in, by column and epoch.

    Args:
        folder: of the run.
        notes: gets a sentence for everything that is missing or cannot be read.
    """
    files = sorted(folder.glob("logs/version_*/metrics.csv"), key=_version)
    if not files:
        notes.append(f"{folder} holds no logs/version_*/metrics.csv: accuracies are not known.")
    found: dict[str, dict[int, float]] = {}
    for file in files:
        for column, values in _columns(file, notes).items():
            # What an interrupted part saw behind its last checkpoint was trained again.
            first = min(values)
            earlier = found.get(column, {})
            kept = {epoch: value for epoch, value in earlier.items() if epoch < first}
            found[column] = {**kept, **values}
    return found


def _version(file: Path) -> tuple[int, str]:
    number = re.fullmatch(r"version_(\d+)", file.parent.name)
    return int(number[1]) if number else -1, file.parent.name


def _columns(file: Path, notes: list[str]) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    unreadable = 0
    try:
        with open(file, newline="", encoding="utf-8") as lines:
            rows = csv.DictReader(lines)
            if "epoch" not in (rows.fieldnames or ()):
                notes.append(f"{file} has no column epoch: its accuracies are left out.")
                return {}
            for row in rows:
                for column in ACCURACIES:
                    if row.get(column) in (None, ""):
                        continue
                    try:
                        epoch, value = int(float(row["epoch"])), float(row[column])
                    except (TypeError, ValueError, OverflowError):
                        unreadable += 1
                        continue
                    found.setdefault(column, {})[epoch] = value
    except (OSError, ValueError, csv.Error) as reason:
        notes.append(f"{file} cannot be read to its end ({' '.join(str(reason).split())}).")
    if unreadable:
        notes.append(f"{file}: {unreadable} accuracies are no numbers and left out.")
    return found
