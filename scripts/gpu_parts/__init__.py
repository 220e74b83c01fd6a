"""The parts of scripts/gpu_check.py: what each runs on a device and holds against it."""

import os
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from math import inf, isfinite, isnan
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SUPPORT = ROOT / "tests" / "support"
SHOWN = 3


class Skipped(Exception):
    """A part that cannot be run on this machine; the message says why."""


@dataclass(frozen=True)
class Machine:
    """What a part runs on.

    Attributes:
        device: ``"cuda"``, or ``"cpu"`` for the smallest form of everything.
        scratch: a folder that all parts share and that is removed at the end.
        cifar10: the folder of CIFAR-10, None where the user has none.
    """

    device: str
    scratch: Path
    cifar10: Path | None = None

    @property
    def has_gpu(self) -> bool:
        """Whether this is the form for GPUs."""
        return self.device == "cuda"

    @property
    def gpus(self) -> int:
        """The number of GPUs."""
        import torch

        return torch.cuda.device_count() if self.has_gpu else 0

    def run_settings(self, name: str) -> list[str]:
        """Return the settings of a short run of ours, in a folder of this name."""
        return [
            f"accelerator={'gpu' if self.has_gpu else 'cpu'}",
            f"checkpoint.dir='{self.scratch / name}'",
            *("scheduler.warmup_epochs=0", "limit_val_batches=1"),
            *("+enable_progress_bar=false", "+enable_model_summary=false"),
        ]


@dataclass
class Findings:
    """What a part has measured, and what is wrong with it.

    Attributes:
        rows: lines of a table, with the same columns each.
        note: a sentence about the table.
        problems: sentences; with one or more the part has failed.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    note: str = ""
    problems: list[str] = field(default_factory=list)

    def require(self, holds: bool, sentence: str) -> None:
        """Note a sentence as a problem unless something holds."""
        if not holds:
            self.problems.append(sentence)

    def plain_rows(self) -> list[dict[str, Any]]:
        """Return the rows with text for what is not finite, which JSON does not have."""
        return [
            {
                key: str(value) if isinstance(value, float) and not isfinite(value) else value
                for key, value in row.items()
            }
            for row in self.rows
        ]

    def reason(self) -> str:
        """Return the first problems, and how many more there are."""
        more = len(self.problems) - SHOWN
        return " ".join([*self.problems[:SHOWN], *([f"And {more} more."] if more > 0 else [])])


def command(*words: Any, codes: Collection[int] = (0,)) -> str:
    """Run a Python program of the project, show what it says and return it."""
    words = tuple(map(str, words))
    print(f"$ python {' '.join(words)}", flush=True)
    process = subprocess.run(
        [sys.executable, "-W", "ignore", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    print(process.stdout, flush=True)
    if process.returncode not in codes:
        raise RuntimeError(f"{words[0]} ended with code {process.returncode}.")
    return process.stdout


def weights_of(checkpoint: Path) -> dict[str, Any]:
    """Return the weights and buffers of a checkpoint, on the CPU."""
    import torch

    content = torch.load(checkpoint, map_location="cpu", weights_only=True)
    return {name: value.double() for name, value in content["state_dict"].items()}


def checkpoint_in(folder: Path) -> Path:
    """Return the only checkpoint in a folder."""
    [checkpoint] = folder.rglob("*.ckpt")
    return checkpoint


def badness(difference: float) -> float:
    """Return a difference that max() can find: a NaN, which compares with nothing, as infinite."""
    return inf if isnan(difference) else difference


def largest_difference(one: Path, other: Path) -> tuple[float, str]:
    """Return by how much the weights of two checkpoints differ at most, and where."""
    first, second = weights_of(one), weights_of(other)
    differences = {name: badness((first[name] - second[name]).abs().max().item()) for name in first}
    worst = max(differences, key=lambda name: differences[name])
    return differences[worst], worst
