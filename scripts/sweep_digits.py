"""Measure MoCo v3 on the digits over positive scale and curvature, several seeds each.

This chose the digits' values in solo_margins/recipes.py. Two runs at a time, one thread each; an
interrupted sweep continues where it stopped, as every finished run is one line of the CSV file.

    python scripts/sweep_digits.py --output docs/results/digits_sweep.csv
"""

import argparse
import csv
import itertools
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

FIELDS = ["scale", "curvature", "seed", "epochs", "online_acc1", "knn_acc1", "seconds"]
Run = tuple[float, float, int, int]


def run_one(run: Run, extra: list[str]) -> dict[str, str]:
    """Pretrain with one setting in this process and return its line of the table."""
    import warnings

    import torch
    from hydra import compose, initialize_config_module

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    from solo_margins import runner
    from solo_margins.runner.knn import knn

    scale, curvature, seed, epochs = run
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        with initialize_config_module("solo_margins.configs", version_base="1.2"):
            cfg = compose(
                "mocov3_margin.yaml",
                overrides=[
                    "data=digits",
                    "variant=baseline",
                    f"method_kwargs.margins.positive_scale={scale}",
                    f"method_kwargs.margins.curvature={curvature}",
                    f"seed={seed}",
                    f"max_epochs={epochs}",
                    f"checkpoint.dir={folder}",
                    "accelerator=cpu",
                    "data.num_workers=0",
                    "+enable_progress_bar=false",
                    "+enable_model_summary=false",
                    *extra,
                ],
            )
        with open(os.devnull, "w") as nowhere:
            sys.stdout = nowhere
            result = runner.pretrain(cfg)
            neighbours = knn([f"pretrained_feature_extractor={result.checkpoint}"])
            sys.stdout = sys.__stdout__
    return {
        "scale": str(scale),
        "curvature": str(curvature),
        "seed": str(seed),
        "epochs": str(epochs),
        "online_acc1": f"{result.metrics['val_acc1']:.2f}",
        "knn_acc1": f"{neighbours['acc1']:.2f}",
        "seconds": f"{time.perf_counter() - began:.0f}",
    }


def finished(path: Path) -> list[dict[str, str]]:
    """Return the lines of the runs that are done."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def print_table(rows: list[dict[str, str]]) -> None:
    """Print mean and standard deviation over seeds for every setting."""
    print(f"{'scale':>6} {'curv.':>6} {'epochs':>6} {'n':>3} {'online':>14} {'kNN':>14}")
    key = "scale", "curvature", "epochs"
    rows = sorted(rows, key=lambda row: [float(row[name]) for name in key])
    for setting, group in itertools.groupby(rows, key=lambda row: [row[name] for name in key]):
        found = list(group)
        cells = []
        for metric in ("online_acc1", "knn_acc1"):
            values = [float(row[metric]) for row in found]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            cells.append(f"{statistics.mean(values):6.2f} ± {spread:5.2f}")
        scale, curvature, epochs = setting
        print(f"{scale:>6} {curvature:>6} {epochs:>6} {len(found):>3} {cells[0]} {cells[1]}")


def main() -> None:
    """Run what is not done yet, with progress, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scales", type=float, nargs="+", default=[1.0, 1.25, 2.0, 5.0])
    parser.add_argument("--curvatures", type=float, nargs="+", default=[float("inf"), 1.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--epochs", type=int, nargs="+", default=[30])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path("outputs/digits_sweep.csv"))
    parser.add_argument("overrides", nargs="*", help="further settings, key=value")
    arguments = parser.parse_args()

    done = {tuple(row[name] for name in FIELDS[:4]) for row in finished(arguments.output)}
    grid = itertools.product(
        arguments.seeds, arguments.scales, arguments.curvatures, arguments.epochs
    )
    runs = [(scale, curvature, seed, epochs) for seed, scale, curvature, epochs in grid]
    runs = [run for run in runs if tuple(map(str, run)) not in done]
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    from tqdm import tqdm

    context = multiprocessing.get_context("spawn")
    with context.Pool(arguments.processes, maxtasksperchild=1) as pool:
        pending = [pool.apply_async(run_one, (run, arguments.overrides)) for run in runs]
        for result in tqdm(pending, desc="runs", unit="run"):
            row = result.get()
            is_new = not arguments.output.exists()
            with arguments.output.open("a", newline="") as file:
                writer = csv.DictWriter(file, FIELDS)
                if is_new:
                    writer.writeheader()
                writer.writerow(row)
    print_table(finished(arguments.output))


if __name__ == "__main__":
    main()
