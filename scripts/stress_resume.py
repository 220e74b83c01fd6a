"""Kill a run at random points, start it again each time, and compare the weights.

Trains on the embedded digits by ``main_pretrain.py``, once in peace and once with kills. One kill
in four comes while the process still starts, the others up to two epochs after it has begun to
train. The signal is SIGKILL, or SIGTERM, after which a run saves its last step. Prints a table that
can go into the documentation.

    python scripts/stress_resume.py
    python scripts/stress_resume.py --method byol_curv --kills 5 --seed 2 --signal TERM
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from solo_margins.checkpoints import newest_readable
from solo_margins.versions import form

ROOT = Path(__file__).resolve().parents[1]
STEPS_AN_EPOCH = 8


@dataclass
class Trial:
    """A run that is killed again and again."""

    command: list[str]
    folder: Path
    signal: int = signal.SIGKILL
    kills: int = 0
    resumes: int = 0
    steps_lost: list[int] = field(default_factory=list)

    def start(self, *changes: str) -> subprocess.Popen[bytes]:
        """Start the command in a process group of its own."""
        return subprocess.Popen(
            [*self.command, *changes],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def kill(self, chance: random.Random, startup: float, epoch: float) -> bool:
        """Start the command and kill it; return False where it has ended by itself before."""
        kept = self.steps_kept()
        began = time.time()
        process = self.start()
        if chance.random() < 0.25:
            seconds = chance.uniform(0, startup)
        else:
            # The lens begins its file anew when a run starts or goes on.
            seen = self.folder / "lens.jsonl"
            while process.poll() is None and not (seen.exists() and seen.stat().st_mtime > began):
                time.sleep(0.02)
            seconds = chance.uniform(0, 2 * epoch)
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, self.signal)
        process.communicate()
        # A run that ends by itself after a signal says so by its exit code, as shells do.
        if process.returncode not in (-self.signal, 128 + self.signal):
            return False
        self.kills += 1
        self.resumes += kept > 0
        self.steps_lost.append(max(0, self.steps_done() - self.steps_kept()))
        return True

    def steps_kept(self) -> int:
        """Return the steps before the newest checkpoint."""
        newest = newest_readable(self.folder)
        return int(load(newest)["global_step"]) if newest is not None else 0

    def steps_done(self) -> int:
        """Return the steps that the last process has begun, as the lens has seen them."""
        seen = self.folder / "lens.jsonl"
        if not seen.exists():
            return 0
        # The last line may be half written.
        lines = seen.read_bytes().split(b"\n")[:-1]
        return max((json.loads(line).get("step", 0) for line in lines), default=0)


def load(checkpoint: Path) -> dict[str, Any]:
    """Return what a checkpoint holds."""
    content: dict[str, Any] = torch.load(checkpoint, weights_only=True, map_location="cpu")
    return content


def tensors(content: Any, name: str = "") -> dict[str, torch.Tensor]:
    """Return all tensors in nested lists and dictionaries, by their path."""
    if isinstance(content, torch.Tensor):
        return {name: content}
    if not isinstance(content, (dict, list, tuple)):
        return {}
    items = content.items() if isinstance(content, dict) else enumerate(content)
    return {k: v for key, item in items for k, v in tensors(item, f"{name}.{key}").items()}


def compare(one: Path, other: Path) -> tuple[int, int, float]:
    """Return how many tensors two checkpoints have, how many differ, and by how much at most."""
    first, second = (
        tensors({part: load(path)[part] for part in ("state_dict", "optimizer_states")})
        for path in (one, other)
    )
    if first.keys() != second.keys():
        raise SystemExit("The checkpoints do not hold the same tensors.")
    unequal = [name for name in first if not torch.equal(first[name], second[name])]
    largest = max(
        (float((first[name].double() - second[name].double()).abs().max()) for name in unequal),
        default=0.0,
    )
    return len(first), len(unequal), largest


def main() -> None:
    """Run both and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--method", default="mocov3_margin")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="of the points at which to kill")
    parser.add_argument("--signal", choices=("KILL", "TERM"), default="KILL")
    parser.add_argument("--workers", type=int, default=2, help="that load data")
    parser.add_argument("overrides", nargs="*", help="further settings of the run")
    given = parser.parse_args()
    chance = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as folder:
        settings = [
            *("--config-name", f"{given.method}.yaml", f"checkpoint.dir={folder}"),
            *(f"max_epochs={given.kills + 5}", f"limit_train_batches={STEPS_AN_EPOCH}"),
            *("limit_val_batches=2", "knn_eval.enabled=true", "knn_eval.k=5"),
            *("auto_resume.enabled=true", "lens.enabled=true", "lens.every=1"),
            *(f"data.num_workers={given.workers}", "+enable_progress_bar=false"),
            *given.overrides,
        ]
        program = [sys.executable, "-W", "ignore", str(ROOT / "main_pretrain.py")]
        runs = Path(folder) / given.method
        with tqdm(total=given.kills + 2, unit="run") as bar:
            whole = Trial([*program, *settings, "run_id=whole", "name=whole"], runs / "whole")
            startup, epoch = measure(whole)
            bar.update()
            killed = Trial(
                [*program, *settings, "run_id=killed"],
                runs / "killed",
                signal.Signals[f"SIG{given.signal}"],
            )
            for _ in range(given.kills):
                if not killed.kill(chance, startup, epoch):
                    break
                bar.update()
            finish(killed)
            bar.update()
        number, unequal, largest = compare(
            *(newest for t in (whole, killed) if (newest := newest_readable(t.folder)))
        )
        report(given, killed, epoch, number, unequal, largest)
    sys.exit(1 if unequal else 0)


def measure(trial: Trial) -> tuple[float, float]:
    """Train in peace; return the seconds to the first step and those of an epoch."""
    began = time.monotonic()
    process = trial.start()
    while not trial.steps_done() and process.poll() is None:
        time.sleep(0.05)
    startup = time.monotonic() - began
    wait_for(process)
    epochs = trial.steps_kept() / STEPS_AN_EPOCH
    return startup, (time.monotonic() - began - startup) / max(1.0, epochs)


def finish(trial: Trial) -> None:
    """Let a run come to its end."""
    trial.resumes += trial.steps_kept() > 0
    wait_for(trial.start())


def wait_for(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process that is to end well."""
    _, said = process.communicate()
    if process.returncode:
        raise SystemExit(f"The run ended with code {process.returncode}:\n{said.decode()}")


def report(
    given: argparse.Namespace, trial: Trial, epoch: float, number: int, unequal: int, largest: float
) -> None:
    """Print the table."""
    print(
        "| method | solo-learn | kills | resumes | steps lost a kill | tensors that differ | ",
        end="",
    )
    print("largest difference |\n|---|---|---|---|---|---|---|")
    lost = f"{sum(trial.steps_lost) / max(1, trial.kills):.1f} (at most {max(trial.steps_lost)})"
    row = [given.method, form(), trial.kills, trial.resumes, lost, f"{unequal} of {number}"]
    print(f"| {' | '.join(map(str, row))} | {largest:g} |")
    print(f"An epoch has {STEPS_AN_EPOCH} steps and took {epoch:.1f} s.")


if __name__ == "__main__":
    main()
