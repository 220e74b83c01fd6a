"""Results files: one line of JSON for every finished run.

Several processes may write a results file at the same time, and it can be read while they do.
Tables are built from it alone, because a line holds every setting that defines its run.

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

import json
import math
import os
import warnings
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from time import gmtime, strftime
from typing import Any

from solo_margins.files import append_line, open_for_appending, read_lines
from solo_margins.same_run import CONTINUED_FROM, run_id


def now() -> str:
    """Return the time, in UTC and ISO 8601."""
    return strftime("%Y-%m-%dT%H:%M:%S+00:00", gmtime())


@dataclass(frozen=True)
class Record:
    """A finished run, one line of a results file.

    Attributes:
        kind: ``"pretrain"``, ``"linear"``, ``"finetune"``, ``"probe"``, …
        settings: every setting that defines the run; its id is made of them.
        host: the version of solo-learn, ``"main"`` or ``"pypi"``.
        figures: measured quantity to its last value; a non-finite value is stored as null and read
            as NaN.
        seconds: time this process took, without that of an interrupted run before it.
        versions: package to version.
        details: anything that does not define the run, such as the path of its checkpoint.
        finished: when, in UTC and ISO 8601.
    """

    kind: str
    settings: dict[str, Any]
    host: str
    figures: dict[str, float] = field(default_factory=dict)
    seconds: float | None = None
    versions: dict[str, str] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    finished: str = field(default_factory=now)

    @property
    def id(self) -> str:
        """The id of the run, see `solo_margins.same_run.run_id`."""
        return run_id(self.kind, self.host, self.settings)

    @property
    def method(self) -> str | None:
        """The method of the run; of a probe, the method of its pretraining."""
        return self.settings.get("method") or self.settings.get("pretrain_method")

    @property
    def data(self) -> str | None:
        """The name of the data; of a probe, the data it was trained on."""
        data = self.settings.get("data") or {}
        return data.get("name") or data.get("dataset")

    @property
    def variant(self) -> str | None:
        """The variant of the recipe; of a probe, that of its pretraining.

        Where the checkpoint of a run with other settings was continued, it says so: such a run is
        not one of the variant.
        """
        variant = self.settings.get("variant") or self.pretraining.get("variant")
        if not self.is_continued:
            return variant
        return "continued" if variant is None else f"{variant} (continued)"

    @property
    def is_continued(self) -> bool:
        """Whether it, or a probe's pretraining, went on from a run with other settings."""
        return CONTINUED_FROM in self.settings or CONTINUED_FROM in self.pretraining

    @property
    def seed(self) -> int | None:
        """The seed of the run itself; a probe's backbone has ``pretraining["seed"]``."""
        return self.settings.get("seed")

    @property
    def pretraining(self) -> dict[str, Any]:
        """The settings of a probe's pretraining, as far as they are known."""
        return self.settings.get("pretraining") or {}

    def to_json(self) -> str:
        """Return the record as one line, without its end."""
        names = ("id", "kind", "method", "data", "variant", "seed")
        content = {**{name: getattr(self, name) for name in names}, **asdict(self)}
        figures = self.figures.items()
        content["figures"] = {name: float(x) if math.isfinite(x) else None for name, x in figures}
        return json.dumps(content, allow_nan=False, default=str)

    @classmethod
    def from_json(cls, line: str | bytes) -> Record:
        """Return the record of a line; unknown keys are ignored.

        Raises:
            ValueError, TypeError, LookupError or AttributeError: the line is not a record.
        """
        content = json.loads(line)
        values = {part.name: content[part.name] for part in fields(cls) if part.name in content}
        values["settings"] = dict(content["settings"])
        figures = content["figures"].items()
        values["figures"] = {name: math.nan if x is None else float(x) for name, x in figures}
        return cls(**values)


def check_appendable(path: str | Path) -> None:
    """Raise ``ValueError`` if a results file cannot be written, before a run starts."""
    try:
        os.close(open_for_appending(Path(path)))
    except OSError as error:
        reason = f"{error.strerror}: {error.filename}"
        raise ValueError(f"results={path} cannot be written ({reason}).") from None


def append(path: str | Path, record: Record) -> None:
    """Add a line to a results file; a missing folder or file is created.

    Other processes may append at the same time, see `solo_margins.files.append_line`.
    """
    append_line(Path(path), record.to_json(), sync=True)


def read(path: str | Path) -> list[Record]:
    """Return the records of a file in the order in which the runs finished.

    An unreadable line, such as the last one of a killed process, is left out with a warning.

    Raises:
        FileNotFoundError: there is no such file.
    """
    records, problems = read_lines(Path(path), Record.from_json)
    for problem in problems:
        warnings.warn(problem, stacklevel=2)
    return records


def latest(records: Iterable[Record]) -> dict[str, Record]:
    """Return the last record of every id: of two equal runs the later one counts.

    Examples:
        >>> runs = [Record("linear", {"seed": 1}, "main", {"val_acc1": x}) for x in (90.0, 91.0)]
        >>> [run.figures for run in latest(runs).values()]
        [{'val_acc1': 91.0}]
    """
    return {record.id: record for record in records}
