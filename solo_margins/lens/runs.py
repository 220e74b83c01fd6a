"""Loads runs for a report: observations, settings, accuracies, and what is missing."""

import csv
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
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
        place: its number in the report, from 0.
        colour: the colour of its lines.
        lens: what the lens observed.
        settings: those of ``args.json``, else of the lens's header, by their full names such as
            ``optimizer.lr``.
        margins: the last margins, None if unknown.
        accuracies: column of ``metrics.csv`` to epoch to value.
    """

    folder: Path
    label: str
    place: int = 0
    colour: str = COLOURS[0]
    lens: LensRun = field(default_factory=LensRun)
    settings: dict[str, Any] = field(default_factory=dict)
    margins: Margins | None = None
    accuracies: dict[str, dict[int, float]] = field(default_factory=dict)

    def described(self, *keys: str) -> str:
        """Return the first of these keys that the settings or the header have, as text."""
        for key in keys:
            value = self.settings.get(key, self.lens.header.get(key))
            if value not in (None, ""):
                return as_text(value)
        return "–"

    @property
    def versions(self) -> dict[str, Any]:
        """Package to version in the run."""
        versions = self.lens.header.get("versions")
        if not isinstance(versions, dict):
            return {}
        return versions

    def number(self, key: str) -> float | None:
        """Return a finite number from ``method_kwargs``, None if it is not one."""
        value: Any = self.settings.get(f"method_kwargs.{key}")
        if type(value) not in (int, float) or not math.isfinite(value):
            return None
        return float(value)

    @property
    def temperature(self) -> float:
        """τ of the loss, the last one where it is scheduled; 0 where it has no negatives."""
        if self.lens.observations:
            observed = self.lens.observations[-1].scalars.get("temperature")
            if observed:
                return observed
        return self.number("temperature") or 0.0

    def band(self) -> tuple[float, float] | None:
        """Return the polarization band, None if the run has none."""
        lower, upper = self.number("polarization.lower"), self.number("polarization.upper")
        is_on = any("pairs_in_band" in seen.scalars for seen in self.lens.observations)
        if not is_on or lower is None or upper is None:
            return None
        return lower, upper


def as_text(value: Any) -> str:
    """Return a setting as text."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.6g}".replace("inf", "∞")
    return str(value)


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
    runs = []
    for folder, name in zip(distinct.values(), names, strict=True):
        run = _load(folder, name, notes)
        if run.settings or run.accuracies or run.lens.header:
            runs.append(run)
    chosen_names = [run.described("name") for run in runs]
    for place, (run, name) in enumerate(zip(runs, chosen_names, strict=True)):
        run.place = place
        run.colour = COLOURS[place % len(COLOURS)]
        # A name that nobody chose is that of method, data and variant; the folder's says more.
        unchosen = "-".join(run.described(key) for key in ("method", "data.name", "variant"))
        if name not in ("–", unchosen) and chosen_names.count(name) == 1:
            run.label = name
    methods = sorted({run.described("method") for run in runs} - {"–"})
    if len(methods) > 1:
        notes.append(
            f"The runs have different methods ({', '.join(methods)}): "
            "their losses and gradients are not comparable."
        )
    return runs, notes


def _load(folder: Path, label: str, notes: list[str]) -> ReportedRun:
    run = ReportedRun(folder, label)
    if not folder.is_dir():
        notes.append(f"{folder} is not a run folder and is left out.")
        return run
    run.lens = _observed(folder, notes)
    run.settings = _settings(folder, run.lens, notes)
    # Whoever has no configuration logs accuracies elsewhere, if at all.
    has_configuration = run.lens.header.get("settings") != {}
    run.accuracies = logged_accuracies(folder, notes if has_configuration else [])
    run.margins = _last_margins(run, notes)
    return run


def _observed(folder: Path, notes: list[str]) -> LensRun:
    """Return what the lens observed of a run."""
    file = folder / records.FILE
    try:
        seen = records.read(folder)
    except FileNotFoundError:
        notes.append(f"{folder} has no {file.name}: the lens was off in this run.")
        return LensRun()
    except OSError as reason:
        notes.append(f"{file} cannot be read ({reason.strerror}).")
        return LensRun()
    notes.extend(seen.problems)
    if not seen.observations:
        notes.append(f"{file} has no observations.")
    return seen


def _settings(folder: Path, seen: LensRun, notes: list[str]) -> dict[str, Any]:
    """Return the settings of a run by their full names, from ``args.json`` or from the lens."""
    try:
        args: Any = read_settings(folder)
        settings = seen.header.get("settings")
        if args is not None:
            settings = OmegaConf.to_container(args)
        if isinstance(settings, dict):
            return flattened(settings)
        notes.append(f"{folder} has no args.json: its settings are unknown.")
    except Exception as reason:
        # OmegaConf raises its own errors for bad interpolations and keys.
        notes.append(f"The settings of {folder} are unknown: {one_line(reason)}")
    return {}


def _last_margins(run: ReportedRun, notes: list[str]) -> Margins | None:
    """Return the last margins of a run, None if they are unknown."""
    values = {name: run.settings.get(f"method_kwargs.margins.{name}") for name in FIELDS}
    if run.lens.observations:
        values.update(run.lens.observations[-1].margins)
    if "scaling" in values:
        notes.append(f"Curves of {run.folder} are drawn without its scaling, {values['scaling']}.")
    # Other versions may have other settings.
    known = {name: values[name] for name in FIELDS if values[name] is not None}
    if not known:
        return None
    try:
        return read(OmegaConf.create({"margins": known}), "margins", Margins)
    except (ValueError, TypeError) as reason:
        notes.append(f"The margins of {run.folder} cannot be drawn: {reason}.")
        return None


def logged_accuracies(folder: Path, notes: list[str]) -> dict[str, dict[int, float]]:
    """Return the logged accuracies of a run, resumed parts joined, by column and epoch.

    Args:
        folder: the run folder.
        notes: receives a message about everything missing or unreadable.
    """
    files = list(folder.glob("logs/version_*/metrics.csv"))
    # By length first: version_10 comes after version_2.
    files.sort(key=lambda file: (len(str(file)), file))
    if not files:
        notes.append(f"{folder} has no logs/version_*/metrics.csv: its accuracies are unknown.")
    joined: dict[str, dict[int, float]] = {}
    for file in files:
        for column, values in _columns(file, notes).items():
            # Epochs after the last checkpoint of an interrupted run were trained again.
            earlier = joined.get(column, {})
            kept = {epoch: value for epoch, value in earlier.items() if epoch < min(values)}
            joined[column] = kept | values
    return joined


def _columns(file: Path, notes: list[str]) -> dict[str, dict[int, float]]:
    columns: dict[str, dict[int, float]] = {}
    names: list[str] = []

    def add(line: bytes) -> None:
        cells = next(csv.reader([line.decode()]))
        if not names:
            names.extend(cells)
            return
        row = dict(zip(names, cells, strict=False))
        for column in ACCURACIES:
            if row.get(column):
                columns.setdefault(column, {})[int(float(row["epoch"]))] = float(row[column])

    try:
        notes.extend(read_lines(file, add)[1])
    except (OSError, csv.Error) as reason:
        notes.append(f"{file} cannot be read completely ({reason}).")
    return columns


def flattened(settings: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested settings by their full names.

    Examples:
        >>> flattened({"optimizer": {"lr": 0.1}, "augmentations": [{"crop_size": 32}]})
        {'optimizer.lr': 0.1, 'augmentations[0].crop_size': 32}
    """
    parts: dict[str, Any] = {}
    if isinstance(settings, dict) and (settings or not prefix):
        for key, value in settings.items():
            parts[f"{prefix}.{key}" if prefix else str(key)] = value
    elif isinstance(settings, list) and any(isinstance(value, (dict, list)) for value in settings):
        for number, value in enumerate(settings):
            parts[f"{prefix}[{number}]"] = value
    else:
        return {prefix: settings}
    names: dict[str, Any] = {}
    for name, part in parts.items():
        names.update(flattened(part, name))
    return names
