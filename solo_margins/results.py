"""Machine-readable results: one line of JSON for every finished run.

A file of results can be written by many processes at once and read while they write. Tables are
rebuilt from it alone, because a line holds every setting that defines its run.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = Path(folder.name) / "runs.jsonl"
    >>> settings = {"method": "byol_curv", "data": {"name": "digits"}, "variant": "curv", "seed": 1}
    >>> append(file, Record("pretrain", settings, host="main", figures={"val_acc1": 93.5}))
    >>> [run] = read(file)
    >>> run.method, run.data, run.variant, run.seed, run.figures["val_acc1"]
    ('byol_curv', 'digits', 'curv', 1, 93.5)
    >>> run.id == run_id("pretrain", "main", settings)
    True
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from solo_margins.files import append_line, open_for_appending, read_lines

NOT_DEFINING = frozenset(
    {
        # names and places
        "name",
        "run_id",
        "result_id",
        "results",
        "skip_finished",
        "default_root_dir",
        "pretrained_feature_extractor",  # what it was trained with counts, not where it is
        "data.download",
        # what is written beside the results
        "checkpoint",
        "auto_resume",
        "auto_umap",
        "debug_augmentations",
        "loggers",
        "lens",
        "log_every_n_steps",
        "wandb",
        "wandb_run_id",
        "enable_progress_bar",
        "enable_model_summary",
        "profiler",
        # the machine: the number of devices counts, their kind does not
        "accelerator",
        "strategy",
        "performance",
        "dali",
        "data.num_workers",
        "num_sanity_val_steps",
        "benchmark",
        "detect_anomaly",
        "numerics.max_consecutive_skips",  # says when to give up, which leaves no result
    }
)
"""Settings that may differ between two runs of the same experiment.

Every other setting defines the run, those that do not exist yet included: to run a cell twice is
better than to skip one that was never run.
"""

NOT_DEFINING_VALUES = {"data.on_error": "raise", "numerics.on_nonfinite": "stop"}
"""Values that change nothing in a run that is finished; any other one defines it."""

WHERE_IMAGES_ARE = frozenset({"data.train_path", "data.val_path", "data.dataset"})
"""Settings that say where named data are stored and how; they define unnamed data."""

UNNAMED_DATA = (None, "folder")
"""Values of ``data.name`` that do not say which images are meant."""

_WHOLE_NUMBERS_UP_TO = 2**53


def defining_settings(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that define a run, in one spelling.

    Absent and null settings are the same, as are 1 and 1.0. Settings of :data:`NOT_DEFINING` are
    left out, values of :data:`NOT_DEFINING_VALUES`, and for data with a name the folders that hold
    it.

    Args:
        configuration: a resolved configuration as plain dictionaries and lists.

    Example:
        >>> defining_settings({"seed": 1.0, "devices": [0, 1], "wandb": {"enabled": True},
        ...     "data": {"name": "cifar10", "train_path": "/x"}, "gradient_clip_val": None})
        {'seed': 1, 'devices': 2, 'data': {'name': 'cifar10'}}
    """
    data = configuration.get("data") or {}
    left_out = NOT_DEFINING
    if data.get("name") not in UNNAMED_DATA:
        left_out = NOT_DEFINING | WHERE_IMAGES_ARE
    settings = _plain(configuration, "", left_out) or {}
    if "devices" in settings:
        # solo-learn scales learning rates by their number.
        settings["devices"] = _count(settings["devices"])
    return settings


def _plain(value: Any, key: str, left_out: frozenset[str]) -> Any:
    """Return a value as JSON knows it, without what is left out, null or empty."""
    if isinstance(value, Mapping):
        found = {}
        for name, item in value.items():
            inner = f"{key}.{name}" if key else str(name)
            plain = None if inner in left_out else _plain(item, inner, left_out)
            if plain is not None and plain == NOT_DEFINING_VALUES.get(inner):
                plain = None
            if plain is not None:
                found[str(name)] = plain
        return found or None
    if isinstance(value, (list, tuple)):
        # The key stays that of the list: no setting inside of one is left out.
        return [_plain(item, f"{key}[]", left_out) for item in value] or None
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        is_whole = value.is_integer() and abs(value) < _WHOLE_NUMBERS_UP_TO
        return int(value) if is_whole else value
    if value is None or isinstance(value, (bool, int)):
        return value
    text = str(value)
    return {".inf": "inf", "None": None}.get(text, text)


def _count(devices: Any) -> Any:
    if isinstance(devices, list):
        return len(devices)
    return int(devices) if str(devices).isdecimal() else devices


def run_id(kind: str, host: str, settings: Mapping[str, Any]) -> str:
    """Return the id of a run: equal settings have equal ids, in any order and on any machine.

    Args:
        kind: ``"pretrain"``, ``"linear"``, …
        host: the form of solo-learn; methods of the same name differ between its forms.
        settings: what :func:`defining_settings` returns.
    """
    described = json.dumps([kind, host, settings], sort_keys=True, default=str)
    return hashlib.sha256(described.encode()).hexdigest()[:16]


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


@dataclass(frozen=True)
class Record:
    """A finished run, one line of a file of results."""

    kind: str
    """What was done: ``"pretrain"``, ``"linear"``, …"""
    settings: dict[str, Any]
    """Every setting that defines the run: what its id is made of."""
    host: str
    """The form of solo-learn: ``"main"`` or ``"pypi"``."""
    figures: dict[str, float] = field(default_factory=dict)
    """Name of a measured quantity to its last value; a value that is not finite is stored as null
    and read as NaN."""
    seconds: float = math.nan
    """Time that this process took; that of an interrupted run is not in it."""
    versions: dict[str, str] = field(default_factory=dict)
    """Package to version."""
    details: dict[str, Any] = field(default_factory=dict)
    """What does not define the run, such as where its checkpoint is."""
    finished: str = field(default_factory=_now)
    """When, in UTC, in the form of ISO 8601."""
    id: str = ""
    """Of kind, host and settings, see :func:`run_id`."""

    def __post_init__(self) -> None:
        """Derive the id where it is not given."""
        if not self.id:
            object.__setattr__(self, "id", run_id(self.kind, self.host, self.settings))

    @property
    def method(self) -> str | None:
        """The method that was trained, or that a probed backbone was trained with."""
        named = self.settings.get("method") or self.settings.get("pretrain_method")
        return named or self.pretraining.get("method")

    @property
    def data(self) -> str | None:
        """The name of the data; of a probe, those that it was probed on."""
        data = self.settings.get("data") or {}
        return data.get("name") or data.get("dataset")

    @property
    def variant(self) -> str | None:
        """The variant of the recipe; of a probe, that of its pretraining."""
        return self.settings.get("variant") or self.pretraining.get("variant")

    @property
    def seed(self) -> int | None:
        """The seed of the run itself; ``pretraining["seed"]`` is that of a probe's backbone."""
        return self.settings.get("seed")

    @property
    def pretraining(self) -> dict[str, Any]:
        """The settings that a probed backbone was trained with, as far as they are known."""
        return self.settings.get("pretraining") or {}

    def to_json(self) -> str:
        """Return the record as one line, without its end."""
        shown = ("kind", "method", "data", "variant", "seed")
        content = {"id": self.id, **{name: getattr(self, name) for name in shown}, **asdict(self)}
        content["figures"] = {
            name: float(value) if math.isfinite(value) else None
            for name, value in self.figures.items()
        }
        content["seconds"] = round(self.seconds, 2) if math.isfinite(self.seconds) else None
        return json.dumps(content, allow_nan=False, default=str)

    @classmethod
    def from_json(cls, line: str | bytes) -> Record:
        """Return the record of a line; keys that this version does not know are ignored.

        Raises:
            ValueError: the line is no record.
        """
        content = json.loads(line)
        if not isinstance(content, dict):
            raise ValueError("not an object")
        known = {part.name for part in fields(cls)}
        for name in ("id", "kind", "settings", "host", "figures", "finished"):
            if name not in content:
                raise ValueError(f"{name} is missing")
        given = {name: value for name, value in content.items() if name in known}
        if not isinstance(given["settings"], dict) or not isinstance(given["figures"], dict):
            raise ValueError("settings and figures must be objects")
        figures = {k: math.nan if v is None else float(v) for k, v in given["figures"].items()}
        seconds = given.get("seconds")
        given.update(figures=figures, seconds=math.nan if seconds is None else float(seconds))
        return cls(**given)


def check_appendable(path: str | Path) -> None:
    """Raise ``ValueError`` now rather than at the end of a run if a file cannot be appended to."""
    try:
        os.close(open_for_appending(Path(path)))
    except OSError as error:
        reason = f"{error.strerror}: {error.filename}"
        raise ValueError(f"results={path} cannot be written ({reason}).") from None


def append(path: str | Path, record: Record) -> None:
    """Add a line to a file of results; folder and file are made where they are missing.

    Other processes may append at the same time, see :func:`solo_margins.files.append_line`.
    """
    append_line(Path(path), record.to_json(), sync=True)


def read(path: str | Path) -> list[Record]:
    """Return the records of a file in the order in which their runs finished.

    A line that cannot be read, such as the last one of a program that was killed while it wrote,
    is left out with a warning that names it.

    Raises:
        FileNotFoundError: there is no such file.
    """
    found, problems = read_lines(Path(path), Record.from_json)
    for problem in problems:
        warnings.warn(problem, stacklevel=2)
    return found


def latest(records: Iterable[Record]) -> dict[str, Record]:
    """Return the last record of every id: of two runs with the same settings, the later counts.

    Example:
        >>> runs = [Record("linear", {"seed": 1}, "main", {"val_acc1": x}) for x in (90.0, 91.0)]
        >>> [run.figures for run in latest(runs).values()]
        [{'val_acc1': 91.0}]
    """
    return {record.id: record for record in records}
