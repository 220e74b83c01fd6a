"""Measure what the lens costs: steps that it observes against those that it does not, in one run.

Trains on the embedded digits with the lens at its default interval and times every batch from
outside, from the end of one to the end of the next. The share of training time that the lens takes
is what an observed step takes longer, divided by all steps from one observation to the next.

    python scripts/bench_lens.py
"""

import argparse
import contextlib
import io
import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from solo_margins.training.programs import build_method, parsed
from tqdm import tqdm

from solo_margins.data.datamodule import RunData
from solo_margins.lens.callback import DEFAULT_INTERVAL, Lens
from solo_margins.resolvers import composed
from solo_margins.training.checked_config import checked
from solo_margins.versions import form

BAR = 0.02


class Clock(pl.Callback):
    """Keeps the time at which every batch ended."""

    def __init__(self, steps: int) -> None:
        self.ended: list[float] = []
        self.bar = tqdm(total=steps, unit="step", leave=False)

    def on_train_batch_end(self, *_: Any) -> None:
        """Look at the clock; called after the lens, which is given to the trainer first."""
        self.ended.append(time.perf_counter())
        self.bar.update()


def measure(config: str, changes: list[str], steps: int, folder: Path) -> tuple[float, float, int]:
    """Return the median times of unobserved and of observed steps, and how many are observed."""
    cfg = parsed(checked(composed(config, ["data.num_workers=0", *changes])))
    pl.seed_everything(1)
    clock = Clock(steps)
    lens = Lens(folder, every=DEFAULT_INTERVAL)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=steps,
        logger=pl.loggers.CSVLogger(folder),
        callbacks=[lens, clock],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
    )
    with contextlib.redirect_stdout(io.StringIO()):
        trainer.fit(build_method(cfg), datamodule=RunData(cfg, pretraining=True))
    clock.bar.close()
    took = [after - before for before, after in zip(clock.ended, clock.ended[1:], strict=False)]
    # took[i] is the time of step i + 1; the first step of all warms caches up and is left out.
    observed = [seconds for step, seconds in enumerate(took, 1) if step % lens.interval == 0]
    others = [seconds for step, seconds in enumerate(took, 1) if step % lens.interval]
    return statistics.median(others), statistics.median(observed), len(observed)


def main() -> None:
    """Print the share of training time for some methods."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=301)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--set", nargs="*", default=[], help="settings of every run")
    arguments = parser.parse_args()
    if arguments.steps <= DEFAULT_INTERVAL:
        parser.error(f"--steps must be above {DEFAULT_INTERVAL}, got {arguments.steps}")
    torch.set_num_threads(arguments.threads)
    warnings.filterwarnings("ignore")
    every = DEFAULT_INTERVAL
    print(
        f"solo-learn: {form()} version, torch {torch.__version__}, "
        f"{arguments.threads} threads, one observation every {every} steps"
    )
    for config in ("mocov3_margin.yaml", "simclr_margin.yaml", "byol_curv.yaml"):
        with tempfile.TemporaryDirectory() as folder:
            plain, observed, number = measure(config, arguments.set, arguments.steps, Path(folder))
        share = (observed - plain) / (every * plain)
        print(
            f"{config.removesuffix('.yaml'):14s} step {1000 * plain:6.1f} ms, observed "
            f"{1000 * observed:6.1f} ms ({number} of them): {share:.2%} of training time "
            f"(bar {BAR:.0%}) {'ok' if share <= BAR else 'MISSED'}",
            flush=True,
        )


if __name__ == "__main__":
    main()
