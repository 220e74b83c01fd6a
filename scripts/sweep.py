"""Pretrain over a grid of settings and measure kNN accuracy, one line of a CSV file a run.

Settings are Hydra's; several values of one are separated by commas. Two runs at a time, one thread
each. An interrupted sweep continues where it stopped, because finished runs are in the file.

    python scripts/sweep.py --config-name mocov3_margin.yaml --output outputs/sweep.csv \
        variant=baseline method_kwargs.margins.positive_scale=1,1.25,2,5 seed=1,2 max_epochs=30
"""

import argparse
import contextlib
import csv
import itertools
import multiprocessing
import os
import statistics
import tempfile
import time
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser

MEASURED = ["online_acc1", "knn_acc1", "seconds"]
Run = dict[str, str]


def grid(settings: list[str]) -> tuple[list[str], list[Run]]:
    """Return the settings that every run shares, and those of each run by name."""
    fixed, axes = [], {}
    parsed = OverridesParser.create().parse_overrides(settings)
    for given, override in zip(settings, parsed, strict=True):
        if override.is_sweep_override():
            axes[override.get_key_element()] = list(override.sweep_string_iterator())
        else:
            fixed.append(given)
    runs = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    return fixed, runs


def run_one(config: str, fixed: list[str], run: Run) -> Run:
    """Pretrain with one setting in this process and return its line of the table."""
    import warnings

    import torch

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    from solo_margins import training
    from solo_margins.evaluation.knn import knn
    from solo_margins.resolvers import composed

    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        quiet = ["+enable_progress_bar=false", "+enable_model_summary=false"]
        overrides = [f"checkpoint.dir={folder}", "accelerator=cpu", *quiet, *fixed]
        overrides += [f"{name}={value}" for name, value in run.items()]
        cfg = composed(config, overrides)
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            result = training.pretrain(cfg)
            # A process of a pool may not have children.
            subject = [f"pretrained_feature_extractor={result.checkpoint}", "data.num_workers=0"]
            neighbours = knn(subject, progress=False)
    return {
        **run,
        "online_acc1": f"{result.metrics['val_acc1']:.2f}",
        "knn_acc1": f"{neighbours['acc1']:.2f}",
        "seconds": f"{time.perf_counter() - began:.0f}",
    }


def finished(path: Path) -> list[Run]:
    """Return the lines of the runs that are done."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append(path: Path, row: Run) -> None:
    """Add a line to the file, with a header if it is the first."""
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, row.keys())
        if is_new:
            writer.writeheader()
        writer.writerow(row)


def print_table(rows: list[Run]) -> None:
    """Print mean and standard deviation over seeds for every setting."""
    settings = [name for name in rows[0] if name not in (*MEASURED, "seed")]

    def setting(row: Run) -> list[str]:
        return [row[name] for name in settings]

    print("  ".join([*settings, "runs", "online", "kNN"]))
    for values, group in itertools.groupby(sorted(rows, key=setting), key=setting):
        found = list(group)
        cells = [*values, str(len(found))]
        for metric in ("online_acc1", "knn_acc1"):
            numbers = [float(row[metric]) for row in found]
            spread = statistics.stdev(numbers) if len(numbers) > 1 else 0.0
            cells.append(f"{statistics.mean(numbers):.2f} ± {spread:.2f}")
        print("  ".join(cells))


def main() -> None:
    """Run what is not done yet, with progress, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config-name", required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("settings", nargs="+", help="key=value, or key=value,value,…")
    arguments = parser.parse_args()

    fixed, runs = grid(arguments.settings)
    done = [
        {name: row[name] for name in row if name not in MEASURED}
        for row in finished(arguments.output)
    ]
    if done and runs and done[0].keys() != runs[0].keys():
        parser.error(
            f"{arguments.output} holds a sweep over {', '.join(done[0])}, not over "
            f"{', '.join(runs[0])}: name another file"
        )
    runs = [run for run in runs if run not in done]
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    from tqdm import tqdm

    context = multiprocessing.get_context("spawn")
    with context.Pool(arguments.processes, maxtasksperchild=1) as pool:
        jobs = [pool.apply_async(run_one, (arguments.config_name, fixed, run)) for run in runs]
        for job in tqdm(jobs, desc="runs", unit="run"):
            append(arguments.output, job.get())
    print_table(finished(arguments.output))


if __name__ == "__main__":
    main()
