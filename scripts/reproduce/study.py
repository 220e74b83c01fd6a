"""What the cells of a grid share: their size, their folders, and the file of their results."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproduce import read_yaml
from reproduce.experiments import Cell
from solo_margins import results

# What these records are called in a file of results.
KIND = "reproduction"


@dataclass(frozen=True)
class Preset:
    """How large the runs of a grid are, see presets.yaml."""

    name: str
    settings: tuple[str, ...] = ()
    probe: str = "linear"
    probe_settings: tuple[str, ...] = ()


def _preset(name: str, probe: str, settings: Any = (), probe_settings: Any = ()) -> Preset:
    return Preset(name, tuple(settings), probe, tuple(probe_settings))


PRESETS = {name: _preset(name, **content) for name, content in read_yaml("presets.yaml").items()}


@dataclass(frozen=True)
class Study:
    """What all cells of a grid share.

    Attributes:
        preset: how large the runs are.
        file: where results are recorded. Paths are absolute: a launcher may run cells elsewhere.
        work: where checkpoints are; those of finished cells are removed unless they are kept.
        images: data set to folder.
        keep_checkpoints: whether they are kept.
    """

    preset: Preset
    file: Path
    work: Path
    images: tuple[tuple[str, str], ...] = ()
    keep_checkpoints: bool = False

    def record(self, cell: Cell, seed: int, probed_on: str, **measured: Any) -> results.Record:
        """Return the record of one probe; what was measured does not change its id."""
        from solo_margins.versions import form

        settings = {
            "preset": self.preset.name,
            "preset_settings": list(self.preset.settings),
            "probe": self.preset.probe,
            "probe_settings": list(self.preset.probe_settings),
            "method": cell.method,
            "data": {"name": cell.data},
            "variant": cell.variant,
            "changes": list(cell.changes),
            "seed": seed,
            "probed_on": probed_on,
        }
        return results.Record(KIND, settings, form(), **measured)

    def recorded(self) -> dict[str, results.Record]:
        """Return the last record of every id in the file of results."""
        return results.latest(results.read(self.file)) if self.file.exists() else {}

    def missing(
        self, records: Container[str], cell: Cell, seed: int, targets: Sequence[str]
    ) -> list[str]:
        """Return the data sets of ``targets`` that a cell was not probed on in these records."""
        return [name for name in targets if self.record(cell, seed, name).id not in records]

    def folder(self, cell: Cell, seed: int) -> Path:
        """Return where a cell is trained: in the same folder whatever it is probed on."""
        identity = self.record(cell, seed, probed_on="").id
        return self.work / f"{cell.method}-{cell.data}-{identity}"
