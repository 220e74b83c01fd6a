"""Pretrain on the digits with and without margins, three seeds each, and show what came out.

The study of docs/results.md finds no variant of MoCo v3 that gains a point in training this
short: the one with margins is here because the report shows its gradient scalings at work.

Every step is a command that a user would type; it is printed before it runs.
"""

import argparse
import csv
import os
import shlex
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from solo_margins import results

PROJECT = Path(__file__).resolve().parents[1]
VARIANTS = {"baseline": "MoCo v3", "pos_curv": "MoCo v3 + margins (pos. & curv.)"}


@dataclass(frozen=True)
class Run:
    """A pretraining and its accuracies in percent, by the kind of probe."""

    variant: str
    seed: int
    accuracies: dict[str, float]
    seconds: float
    checkpoint: str


def run(*arguments: str) -> str:
    """Show a command, run it with its output on the screen, and return that output."""
    print(f"\n$ python {shlex.join(arguments)}", flush=True)
    # solo-learn and its stack warn about each other's age; the demo is about something else.
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=PROJECT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    output = b""
    # By character blocks, not lines: a progress bar never ends its line.
    while block := os.read(process.stdout.fileno(), 4096):
        output += block
        sys.stdout.buffer.write(block)
        sys.stdout.flush()
    if process.wait() != 0:
        sys.exit(f"The command above ended with exit code {process.returncode}.")
    return output.decode(errors="replace")


def multirun(program: str, config: str, *settings: str) -> None:
    """Run a grid of settings, two runs at a time."""
    side_by_side = ("--multirun", "launcher=joblib", "hydra.launcher.n_jobs=2")
    run(program, "--config-name", config, *side_by_side, *settings)


def pretrain_and_probe(folder: Path, seeds: list[int], epochs: int | None) -> list[Run]:
    """Pretrain and probe every variant with every seed, and return how each did."""
    from solo_margins.evaluation.knn import knn

    file = folder / "runs.jsonl"
    # A demo that is run twice shows its second runs.
    file.unlink(missing_ok=True)
    shared = (f"checkpoint.dir={folder}", f"results={file}")
    multirun(
        "main_pretrain.py",
        "mocov3_margin.yaml",
        f"variant={','.join(VARIANTS)}",
        f"seed={','.join(map(str, seeds))}",
        "lens.enabled=true",
        *shared,
        *([f"max_epochs={epochs}"] if epochs else []),
    )
    pretrained: dict[str, Any] = {r.details["checkpoint"]: r for r in results.read(file)}
    checkpoints = f"pretrained_feature_extractor={','.join(pretrained)}"
    multirun("main_linear.py", "linear.yaml", checkpoints, "max_epochs=20", *shared)
    linear = {
        record.details["pretrained_feature_extractor"]: record.figures["val_acc1"]
        for record in results.read(file)
        if record.kind == "linear"
    }
    print("\n>>> from solo_margins.evaluation.knn import knn", flush=True)
    found = []
    for checkpoint, record in sorted(pretrained.items(), key=lambda item: item[1].seed):
        arguments = [f"pretrained_feature_extractor={checkpoint}", "k=20"]
        print(f">>> knn({arguments})", flush=True)
        neighbours = knn(arguments, progress=False)["acc1"]
        accuracies = {"linear": linear[checkpoint], "knn": neighbours}
        found.append(Run(record.variant, record.seed, accuracies, record.seconds, checkpoint))
    return found


def read_curve(run: Run, metric: str) -> tuple[list[float], list[float]]:
    """Return steps and values of a metric from all CSV files of a run."""
    steps, values = [], []
    for file in sorted(Path(run.checkpoint).parent.rglob("metrics.csv")):
        with file.open(newline="") as lines:
            for row in csv.DictReader(lines):
                if row.get(metric):
                    steps.append(float(row["step"]))
                    values.append(float(row[metric]))
    return steps, values


def plot(runs: list[Run], path: Path) -> None:
    """Draw every run over training, and the final accuracies: a dot a seed, a line the mean."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(16, 3.8))
    panels = {
        "train_contrastive_loss_step": "contrastive loss",
        "val_acc1": "online accuracy, %",
        "grad_norm": "gradient norm",
    }
    colours = dict(zip(VARIANTS, ("tab:blue", "tab:orange"), strict=True))
    for axis, (metric, title) in zip(axes, panels.items(), strict=False):
        for run in runs:
            axis.plot(*read_curve(run, metric), color=colours[run.variant], linewidth=0.9)
        axis.set(title=title, xlabel="step")
        axis.grid(alpha=0.3)
    axes[0].legend(
        [plt.Line2D([], [], color=colour) for colour in colours.values()], [*VARIANTS.values()]
    )
    names = {"linear": "linear probe", "knn": "kNN"}
    for place, kind in enumerate(names):
        for shift, variant in enumerate(VARIANTS):
            values = [run.accuracies[kind] for run in runs if run.variant == variant]
            spot, colour = place + 0.3 * shift, colours[variant]
            axes[3].plot([spot] * len(values), values, "o", color=colour, alpha=0.7)
            mean = statistics.mean(values)
            axes[3].hlines(mean, spot - 0.1, spot + 0.1, color=colour)
            axes[3].annotate(f"{mean:.1f}", (spot + 0.11, mean), va="center", fontsize=8)
    axes[3].set(title="validation accuracy, %, by seed", xlim=(-0.3, 1.7))
    axes[3].set_xticks([0.15, 1.15], [*names.values()])
    axes[3].grid(alpha=0.3, axis="y")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def mean_and_spread(values: list[float], sign: str = "") -> str:
    """Return mean and standard deviation of some runs."""
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):{sign}.1f}{spread}"


def table(runs: list[Run]) -> str:
    """Return accuracies by variant over the seeds, and their differences seed by seed."""
    rows = {
        title: {
            kind: [run.accuracies[kind] for run in runs if run.variant == variant]
            for kind in ("linear", "knn")
        }
        for variant, title in VARIANTS.items()
    }
    lines = [f"{'':34s} {'linear probe, %':>16s} {'kNN (k=20), %':>16s}"]
    for title, found in rows.items():
        shown = [mean_and_spread(values) for values in found.values()]
        lines.append(f"{title:34s} {shown[0]:>16s} {shown[1]:>16s}")
    without, margins = rows.values()
    differences = [
        mean_and_spread(
            [one - other for one, other in zip(margins[kind], without[kind], strict=True)], "+"
        )
        for kind in without
    ]
    lines.append(f"{'difference, seed by seed':34s} {differences[0]:>16s} {differences[1]:>16s}")
    return "\n".join(lines)


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("outputs/demo"))
    parser.add_argument("--epochs", type=int, help="of pretraining; the recipe's by default")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    arguments = parser.parse_args()
    folder = arguments.output.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    runs = pretrain_and_probe(folder, arguments.seeds, arguments.epochs)
    plot(runs, folder / "demo.png")
    first = [run for run in runs if run.seed == arguments.seeds[0]]
    report = folder / "report.html"
    run(
        *("-m", "solo_margins.lens", "report"),
        *(str(Path(run.checkpoint).parent) for run in first),
        f"output={report}",
    )
    print(f"\n{table(runs)}")
    print(
        f"{len(arguments.seeds)} seeds on 1,433 training and 364 validation images, mean ± "
        "standard deviation:\na difference that is not several times its spread says nothing."
    )
    print(f"\nruns     {folder / 'runs.jsonl'}")
    print(f"report   {report} (seed {arguments.seeds[0]})")
    print(f"plot     {folder / 'demo.png'}")
    print(f"It took {(time.perf_counter() - began) / 60:.1f} minutes.")


if __name__ == "__main__":
    main()
