"""Pretrain MoCo v3 on the embedded digits without margins and with four settings, and compare.

Every run is a command that a user would type, two at a time. A run that has finished is not made
again while its settings stay the same; one that was interrupted starts anew.
"""

import argparse
import math
import os
import shlex
import statistics
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from solo_margins import results
from solo_margins.lens import records
from solo_margins.lens.records import Histogram, Observation

PROJECT = Path(__file__).resolve().parents[1]
BAND = (0.2, 0.4)  # the distances that polarization empties
VARIANTS = {
    "baseline": [],
    "s = 0.5": ["method_kwargs.margins.positive_scale=0.5"],
    "s = 20": ["method_kwargs.margins.positive_scale=20"],
    "m1 + m2": ["method_kwargs.margins.angular=0.1", "method_kwargs.margins.subtractive=0.4"],
    "polarization": ["method_kwargs.polarization.weight=100"],
}
COLOURS = dict(zip(VARIANTS, ("#6b7280", "#8fbbe8", "#2f81d6", "#f07f1e", "#2ca05a"), strict=True))
# Column to the digits that it is shown with.
COLUMNS = {
    "linear, %": 1,
    "kNN, %": 1,
    "positive angle, °": 1,
    "pairs in band, %": 1,
    "effective scale": 2,
}
NEXT = """
Next, with images of your own (class folders; validation images are optional):

  python main_pretrain.py --config-name mocov3_margin.yaml data=folder \\
    data.train_path=<folder> data.val_path=<folder> variant=baseline lens.enabled=true
  python main_pretrain.py … variant=margins        # and variant=pos, variant=dp
  python -m solo_margins.lens advise <run folder>
  python -m solo_margins.lens report <run folder> <run folder>

docs/guide.md says which setting to try first, and when margins hurt."""


@dataclass(frozen=True)
class Run:
    """A finished pretraining, and what the lens saw."""

    variant: str
    folder: Path
    observations: list[Observation]


def share_in_band(distances: Histogram) -> float:
    """Return the percentage of pairs whose distance is in the band."""
    edges = [round(edge, 6) for edge in distances.edges]
    first, last = edges.index(BAND[0]), edges.index(BAND[1])
    return 100 * sum(distances.counts[first:last]) / sum(distances.counts)


def numbers(run: Run) -> dict[str, float]:
    """Return the row of a run in the table: accuracies, and the last thing that the lens saw."""
    from solo_margins.evaluation.probe import linear_and_knn

    probed, voted = linear_and_knn([f"pretrained_feature_extractor={run.folder}"], progress=False)
    last = run.observations[-1]
    values = (
        probed.acc1,
        voted["acc1"],
        math.degrees(last.scalars["positive_angle"]),
        share_in_band(last.histograms["distance"]),
        last.scalars["effective_scale"],
    )
    return dict(zip(COLUMNS, values, strict=True))


def finished(file: Path, epochs: int) -> list[results.Record]:
    """Return the records of a run, unless its folder is gone: then it has to be made again."""
    if not file.exists():
        return []
    found = [one for one in results.read(file) if one.settings["max_epochs"] == epochs]
    if not all(Path(one.details["folder"], records.FILE).exists() for one in found):
        file.unlink()
        return []
    return found


def pretrain(variant: str, seed: int, epochs: int, output: Path) -> Run:
    """Pretrain a variant unless that is done already, and print one line about it."""
    name = f"{variant.replace(' ', '')}-seed{seed}"
    file = output / f"{name}.jsonl"
    before = finished(file, epochs)
    words = [
        *("main_pretrain.py", "--config-name", "mocov3_margin.yaml", "variant=baseline"),
        *VARIANTS[variant],
        *(f"seed={seed}", f"max_epochs={epochs}", "lens.enabled=true", "lens.every=5"),
        *(f"name='{name}'", f"checkpoint.dir='{output}'", f"results='{file}'"),
        "skip_finished=true",
    ]
    # solo-learn and its stack warn about each other's age; the demo is about something else.
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=PROJECT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{done.stdout}\n$ python {shlex.join(words)}\nended with an error.")
    record = finished(file, epochs)[-1]
    took = "finished before" if record in before else f"{record.seconds:.0f} s"
    accuracy = record.figures["val_acc1"]
    print(f"{variant}, seed {seed}: {took}, online classifier {accuracy:.1f} %", flush=True)
    folder = Path(record.details["folder"])
    return Run(variant, folder, records.read(folder).observations)


def pretrain_all(seeds: list[int], epochs: int, output: Path) -> list[Run]:
    """Pretrain every variant with every seed, two at a time; the first failure ends it."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        futures = [
            pool.submit(pretrain, variant, seed, epochs, output)
            for variant in VARIANTS
            for seed in seeds
        ]
        try:
            return [future.result() for future in futures]
        except (RuntimeError, KeyboardInterrupt) as reason:
            pool.shutdown(cancel_futures=True)
            sys.exit(str(reason) or "Interrupted. The next demo uses the runs that have finished.")


def plot(runs: list[Run], path: Path) -> None:
    """Draw angles and distances of all seeds together, and gradients with a line for each run."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 7.5), layout="constrained")
    [[angles, distances], [forces, scales]] = figure.subplots(2, 2)
    for variant, colour in COLOURS.items():
        of_variant = [run for run in runs if run.variant == variant]
        for axis, name in ((angles, "positive_angle"), (distances, "distance")):
            histograms = [run.observations[-1].histograms[name] for run in of_variant]
            counts = [sum(bins) for bins in zip(*(one.counts for one in histograms), strict=True)]
            shares = [100 * count / sum(counts) for count in counts]
            edges = histograms[0].edges
            if name == "positive_angle":
                edges = [math.degrees(edge) for edge in edges]
            axis.stairs(shares, edges, color=colour, linewidth=1.6)
        for run in of_variant:
            steps = [one.step for one in run.observations]
            for axis, name, style in (
                (forces, "pull", "-"),
                (forces, "push", ":"),
                (scales, "effective_scale", "-"),
            ):
                values = [one.scalars[name] for one in run.observations]
                axis.plot(steps, values, style, color=colour, linewidth=1.4)
    distances.axvspan(*BAND, color="#2ca05a", alpha=0.12, linewidth=0)
    angles.set(title="angles of positives, at the end", xlabel="degrees", ylabel="% of pairs")
    distances.set(
        title="distances of all pairs, at the end", xlabel="(1 − cos θ) / 2; shaded: band"
    )
    forces.set(title="pull of positives (—) and push of negatives (···)", yscale="log")
    scales.set(title="effective scale: the pull over that without margins", yscale="log")
    for axis in (forces, scales):
        axis.set(xlabel="optimiser step")
    for axis in figure.axes:
        axis.grid(alpha=0.3)
    lines = [scales.plot([], [], color=colour)[0] for colour in COLOURS.values()]
    figure.legend(lines, list(COLOURS), loc="outside upper center", ncols=len(COLOURS))
    figure.savefig(path, dpi=100)


def table(runs: list[Run]) -> str:
    """Return means and deviations over the seeds, a line for each variant."""
    rows = {
        variant: [numbers(run) for run in runs if run.variant == variant] for variant in VARIANTS
    }
    lines = [f"{'':12s}" + "".join(f"{column:>19s}" for column in COLUMNS)]
    for variant, row in rows.items():
        cells = []
        for column, digits in COLUMNS.items():
            values = [one[column] for one in row]
            cell = f"{statistics.mean(values):.{digits}f}"
            if len(values) > 1:
                cell += f" ± {statistics.stdev(values):.{digits}f}"
            cells.append(f"{cell:>19s}")
        lines.append(f"{variant:12s}" + "".join(cells))
    return "\n".join(lines)


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("outputs/demo"))
    parser.add_argument("--epochs", type=int, default=20, help="of pretraining")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    # As in the environment of the runs.
    warnings.simplefilter("ignore")
    output = arguments.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    print("python main_pretrain.py --config-name mocov3_margin.yaml variant=baseline, and:")
    for variant, settings in VARIANTS.items():
        print(f"  {variant:12s} {' '.join(settings) or 'no margins'}")
    print(flush=True)
    runs = pretrain_all(arguments.seeds, arguments.epochs, output)
    print(f"\n{table(runs)}")
    print(
        f"Mean ± standard deviation, seeds: {len(arguments.seeds)}. 1,433 training and 364 "
        "validation images.\nA difference that is not several times its spread says nothing."
    )
    plot(runs, output / "demo.png")
    from solo_margins.lens.report import write_report

    of_first_seed = [str(run.folder) for run in runs[:: len(arguments.seeds)]]
    report = write_report([*of_first_seed, f"output={output / 'report.html'}"])
    print(f"\npicture  {output / 'demo.png'}")
    print(f"report   {report} (seed {arguments.seeds[0]}, every quantity)")
    print(NEXT)
    print(f"\nIt took {(time.perf_counter() - began) / 60:.1f} minutes.")


if __name__ == "__main__":
    main()
