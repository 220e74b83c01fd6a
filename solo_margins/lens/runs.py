"""Loads runs for a report: observations, settings, accuracies, and what is missing."""

import csv
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from solo_margins.checkpoints import read_settings
from solo_margins.cli import one_line
from solo_margins.config import read
from solo_margins.files import read_lines
from solo_margins.lens import records
from solo_margins.lens.records import LensRun
from solo_margins.losses import Margins
from solo_margins.losses.margins import FIELDS

# Distinguishable on a light and on a dark background.
COLOURS = ("#2f81d6", "#f07f1e", "#2ca05a", "#d6404a", "#9a6dd0", "#a2725f", "#e377c2", "#17aec0")
# Column of metrics.csv to the classifier it belongs to.
ACCURACIES = {"val_acc1": "online classifier", "val_knn_acc1": "kNN"}


@dataclass
class ReportedRun:
    """A run as a report shows it.

    Attributes:
        folder: the run folder.
        label: its short name in the report.
        colour: the colour of its lines.
        lens: what the lens observed.
        settings: those of ``args.json``, else of the lens's header, by their full names such as
            ``optimizer.lr``.
        margins: the last margins, None if unknown.
        accuracies: column of ``metrics.csv`` to epoch to value.
    """

    folder: Path
    label: str
    colour: str = COLOURS[0]
    lens: LensRun = field(default_factory=LensRun)
    settings: dict[str, Any] = field(default_factory=dict)
    margins: Margins | None = None
    accuracies: dict[str, dict[int, float]] = field(default_factory=dict)

    def described(self, *keys: str) -> str:
        """Return the first of these keys that the settings or the header have, as text."""
        values = (self.settings.get(key, self.lens.header.get(key)) for key in keys)
        return next((as_text(value) for value in values if value not in (None, "")), "–")

    @property
    def versions(self) -> dict[str, Any]:
        """Package to version in the run."""
        versions = self.lens.header.get("versions")
        return versions if isinstance(versions, dict) else {}

    def number(self, key: str) -> float | None:
        """Return a finite number from ``method_kwargs``, None if it is not one."""
        value: Any = self.settings.get(f"method_kwargs.{key}")
        return float(value) if type(value) in (int, float) and math.isfinite(value) else None

    @property
    def temperature(self) -> float:
        """τ of the loss, the last one where it is scheduled; 0 where it has no negatives."""
        last = self.lens.observations[-1].scalars if self.lens.observations else {}
        return last.get("temperature") or self.number("temperature") or 0.0

    def band(self) -> tuple[float, float] | None:
        """Return the polarization band, None if the run has none."""
        band: Any = self.number("polarization.lower"), self.number("polarization.upper")
        is_on = any("pairs_in_band" in seen.scalars for seen in self.lens.observations)
        return band if is_on and None not in band else None


def as_text(value: Any) -> str:
    """Return a setting as text."""
    if isinstance(value, float):
        return f"{value:.6g}".replace("inf", "∞")
    return "–" if value is None else str(value)


def load_runs(folders: Sequence[Path]) -> tuple[list[ReportedRun], list[str]]:
    """Return the runs with any data, and messages about everything missing."""
    notes: list[str] = []
    distinct: dict[Path, Path] = {}
    for folder in folders:
        if folder.resolve() in distinct:
            notes.append(f"{folder} is listed more than once and shown once.")
        distinct.setdefault(folder.resolve(), folder)
    names = [folder.name for folder in distinct]
    if len(set(names)) < len(names):
        names = [os.path.relpath(folder, os.path.commonpath(distinct)) for folder in distinct]
    runs = [_load(*run, notes) for run in zip(distinct.values(), names, strict=True)]
    runs = [run for run in runs if run.settings or run.accuracies or run.lens.header]
    names = [run.described("name") for run in runs]
    for run, name, colour in zip(runs, names, cycle(COLOURS), strict=False):
        run.colour = colour
        # A name that nobody chose is that of method, data and variant; the folder's says more.
        unchosen = "-".join(run.described(key) for key in ("method", "data.name", "variant"))
        if name not in ("–", unchosen) and names.count(name) == 1:
            run.label = name
    methods = sorted({run.described("method") for run in runs} - {"–"})
    if len(methods) > 1:
        words = "their losses and gradients are not comparable"
        notes.append(f"The runs have different methods ({', '.join(methods)}): {words}.")
    return runs, notes


def _load(folder: Path, label: str, notes: list[str]) -> ReportedRun:
    run = ReportedRun(folder, label)
    if not folder.is_dir():
        notes.append(f"{folder} is not a run folder and is left out.")
        return run
    file = folder / records.FILE
    try:
        run.lens = records.read(folder)
        notes.extend(run.lens.problems)
        if not run.lens.observations:
            notes.append(f"{file} has no observations.")
    except FileNotFoundError:
        notes.append(f"{folder} has no {file.name}: the lens was off in this run.")
    except OSError as reason:
        notes.append(f"{file} cannot be read ({reason.strerror}).")
    try:
        args: Any = read_settings(folder)
        settings = run.lens.header.get("settings") if args is None else OmegaConf.to_container(args)
        if isinstance(settings, dict):
            run.settings = flattened(settings)
        else:
            notes.append(f"{folder} has no args.json: its settings are unknown.")
    except Exception as reason:
        # OmegaConf raises its own errors for bad interpolations and keys.
        notes.append(f"The settings of {folder} are unknown: {one_line(reason)}")
    # Whoever has no configuration logs accuracies elsewhere, if at all.
    is_ours = run.lens.header.get("settings") != {}
    run.accuracies = logged_accuracies(folder, notes if is_ours else [])
    values = {name: run.settings.get(f"method_kwargs.margins.{name}") for name in FIELDS}
    if run.lens.observations:
        values.update(run.lens.observations[-1].margins)
    # Other versions may have other settings.
    known = {name: values[name] for name in FIELDS if values[name] is not None}
    try:
        if known:
            run.margins = read(OmegaConf.create({"margins": known}), "margins", Margins)
    except (ValueError, TypeError) as reason:
        notes.append(f"The margins of {folder} cannot be drawn: {reason}.")
    return run


def logged_accuracies(folder: Path, notes: list[str]) -> dict[str, dict[int, float]]:
    """Return the logged accuracies of a run, resumed parts joined, by column and epoch.

    Args:
        folder: the run folder.
        notes: receives a message about everything missing or unreadable.
    """
    # By length first: version_10 comes after version_2.
    files = sorted(folder.glob("logs/version_*/metrics.csv"), key=lambda one: (len(str(one)), one))
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


def flattened(settings: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested settings by their full names.

    Example:
        >>> flattened({"optimizer": {"lr": 0.1}, "augmentations": [{"crop_size": 32}]})
        {'optimizer.lr': 0.1, 'augmentations[0].crop_size': 32}
    """
    if isinstance(settings, dict) and (settings or not prefix):
        items = {f"{prefix}.{key}" if prefix else str(key): settings[key] for key in settings}
    elif isinstance(settings, list) and any(isinstance(value, (dict, list)) for value in settings):
        items = {f"{prefix}[{number}]": value for number, value in enumerate(settings)}
    else:
        return {prefix: settings}
    parts = [flattened(part, key) for key, part in items.items()]
    return {name: value for part in parts for name, value in part.items()}
