"""Measure how long a program takes from the command to the end of its first training step.

Starts ``main_pretrain.py`` several times as a user does, each time in a new process and a new
folder, and prints the median seconds of every part; those of the processor beside those of the
clock, because other programs make the clock's longer. Best on an idle core:

    taskset -c 0 python scripts/bench_start.py
    taskset -c 0 python scripts/bench_start.py data=folder data.train_path=/path/to/images

Whatever follows is given to the program; with ``PYTHONPATH`` it runs on another solo-learn.
"""

import argparse
import functools
import json
import os
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).resolve().parents[1] / "main_pretrain.py"
# In the order of a run. What happens until one is reached belongs to it.
PARTS = {
    "configuration": "Python, Hydra, and the files of the configuration",
    "imports": "torch, Lightning, solo-learn and our own modules",
    "checks": "settings are checked and completed",
    "model": "networks are built",
    "data": "images are found, the run's folder is chosen",
    "trainer": "Lightning's trainer is built",
    "set-up": "callbacks, optimiser, workers of the loaders, first batches",
    "sanity check": "validation batches before the training",
    "first batch": "the first training batch is read",
    "first step": "forward, backward, optimiser, teacher",
}
STARTED = "BENCH_START_STARTED"
OUTPUT = "BENCH_START_OUTPUT"
# Marks a process that this script has started.
OBSERVED = "--observed"


class Clock:
    """Writes down when each part of a run is reached, in seconds since the command."""

    def __init__(self) -> None:
        self.times: dict[str, tuple[float, float]] = {}

    def reach(self, part: str) -> None:
        """Look at both clocks; the last time counts, if a part is reached more than once."""
        self.times[part] = (time.time() - float(os.environ[STARTED]), time.process_time())

    def save(self) -> None:
        """Write what was measured, once."""
        path = Path(os.environ[OUTPUT])
        if not path.exists():
            path.write_text(json.dumps(self.times))


def run_observed(arguments: list[str]) -> None:
    """Run the program in this process, and write when its parts were reached."""
    from solo_margins import training

    clock = Clock()

    def after(owner: Any, name: str, part: str) -> None:
        original = getattr(owner, name)

        def observed(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            clock.reach(part)
            return result

        setattr(owner, name, observed)

    import_programs = training._programs

    def observed_programs() -> Any:
        clock.reach("configuration")
        programs = import_programs()
        clock.reach("imports")
        import lightning.pytorch as pl

        after(programs, "checked", "checks")
        after(programs, "build_method", "model")

        class Observer(pl.Callback):
            def on_sanity_check_start(self, *_: Any) -> None:
                clock.reach("set-up")

            def on_train_start(self, *_: Any) -> None:
                clock.reach("sanity check")

            def on_train_batch_start(self, *_: Any) -> None:
                clock.reach("first batch")

            def on_train_batch_end(self, *_: Any) -> None:
                clock.reach("first step")
                clock.save()

        trainer_class: Any = pl.Trainer
        original = trainer_class.__init__

        # Our program asks for the names of its arguments.
        @functools.wraps(original)
        def build(self: Any, *, callbacks: list[Any], **others: Any) -> None:
            clock.reach("data")
            original(self, callbacks=[*callbacks, Observer()], **others)
            clock.reach("trainer")

        trainer_class.__init__ = build
        return programs

    training._programs = observed_programs
    sys.argv = [str(PROGRAM), *arguments]
    sys.path[0] = str(PROGRAM.parent)
    runpy.run_path(str(PROGRAM), run_name="__main__")


def measure(arguments: list[str]) -> dict[str, tuple[float, float]]:
    """Start the program once and return the seconds of each part, by clock and by processor."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "times.json")
        environment = {**os.environ, OUTPUT: str(output), STARTED: str(time.time())}
        command = [sys.executable, str(Path(__file__).resolve()), OBSERVED, *arguments]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if not output.exists():
            raise SystemExit(f"The program took no step:\n{done.stdout}{done.stderr}")
        reached = json.loads(output.read_text())
    times = {}
    before = (0.0, 0.0)
    for part in (part for part in PARTS if part in reached):
        now = tuple(reached[part])
        times[part] = (now[0] - before[0], now[1] - before[1])
        before = now
    return times


def main() -> None:
    """Print the median of each part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--config-name", default="mocov3_margin.yaml")
    parser.add_argument("overrides", nargs="*", help="of the program's settings")
    given = parser.parse_intermixed_args()
    arguments = ["--config-name", given.config_name, "max_steps=1", *given.overrides]
    runs = [measure(arguments) for _ in range(given.repeats)]
    print(f"{PROGRAM.name} {' '.join(arguments)}: median of {given.repeats} starts, in seconds")
    print(f"{'':14}{'clock':>8}{'processor':>11}")
    for part in runs[0]:
        wall, used = (statistics.median(run[part][i] for run in runs) for i in (0, 1))
        print(f"{part:14}{wall:8.2f}{used:11.2f}   {PARTS[part]}")
    wall, used = (
        statistics.median(sum(times[i] for times in run.values()) for run in runs) for i in (0, 1)
    )
    print(f"{'all':14}{wall:8.2f}{used:11.2f}")


if __name__ == "__main__":
    if sys.argv[1:2] == [OBSERVED]:
        run_observed(sys.argv[2:])
    else:
        main()
