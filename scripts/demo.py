"""Pretrain on the digits with and without margins, probe both, and print, plot and report it.

Every step is a command that a user would type; it is printed before it runs.
"""

import argparse
import csv
import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
VARIANTS = {"baseline": "MoCo v3", "pos_curv": "MoCo v3 + margins (pos. & curv.)"}


def run(*arguments: str) -> str:
    """Show a command, run it with its output on the screen, and return that output."""
    print(f"\n$ python {shlex.join(arguments)}", flush=True)
    # solo-learn and its stack warn about each other's age; the demo is about something else.
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "2"}
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


def found(pattern: str, output: str) -> str:
    """Return what the last match of a pattern captured."""
    matches = re.findall(pattern, output)
    if not matches:
        sys.exit(f"The output of the command above has no line like {pattern!r}.")
    return str(matches[-1]).strip()


def pretrain_and_probe(variant: str, folder: Path, extra: list[str]) -> dict[str, str]:
    """Run the three commands for one variant and return where things are and how it did."""
    began = time.perf_counter()
    output = run(
        "main_pretrain.py",
        "--config-name",
        "mocov3_margin.yaml",
        f"variant={variant}",
        f"checkpoint.dir={folder}",
        "lens.enabled=true",
        *extra,
    )
    checkpoint = found(r"Checkpoint: (.+)", output)
    logs = found(r"Logs: (.+)", output)
    pretrained = time.perf_counter()
    output = run(
        "main_linear.py",
        "--config-name",
        "linear.yaml",
        f"pretrained_feature_extractor={checkpoint}",
        f"checkpoint.dir={folder}",
        "max_epochs=20",
    )
    linear = found(r"Validation accuracy: ([\d.]+) %", output)
    output = run(
        "-m", "solo_margins.evaluation.knn", f"pretrained_feature_extractor={checkpoint}", "k=20"
    )
    neighbours = found(r"acc1 = ([\d.]+) %", output)
    return {
        "variant": variant,
        "linear": linear,
        "knn": neighbours,
        "pretraining_seconds": f"{pretrained - began:.0f}",
        "checkpoint": checkpoint,
        "logs": logs,
    }


def read_curve(logs: str, metric: str) -> tuple[list[float], list[float]]:
    """Return steps and values of a metric from all CSV files of a run."""
    steps, values = [], []
    for file in sorted(Path(logs).rglob("metrics.csv")):
        with file.open(newline="") as lines:
            for row in csv.DictReader(lines):
                if row.get(metric):
                    steps.append(float(row["step"]))
                    values.append(float(row[metric]))
    return steps, values


def plot(results: list[dict[str, str]], path: Path) -> None:
    """Draw loss, online accuracy and gradient norm over training, and the final accuracies."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(16, 3.8))
    panels = {
        "train_contrastive_loss_step": "contrastive loss",
        "val_acc1": "online accuracy, %",
        "grad_norm": "gradient norm",
    }
    for axis, (metric, title) in zip(axes, panels.items(), strict=False):
        for result in results:
            axis.plot(*read_curve(result["logs"], metric), label=VARIANTS[result["variant"]])
        axis.set(title=title, xlabel="step")
        axis.grid(alpha=0.3)
    axes[0].legend()
    width = 0.35
    for place, result in enumerate(results):
        heights = [float(result["linear"]), float(result["knn"])]
        spots = [0 + place * width, 1 + place * width]
        bars = axes[3].bar(spots, heights, width, label=VARIANTS[result["variant"]])
        axes[3].bar_label(bars, fmt="%.1f")
    lowest = min(float(result[key]) for result in results for key in ("linear", "knn"))
    axes[3].set(title="validation accuracy, %", ylim=(max(0.0, lowest - 5), 101))
    axes[3].set_xticks([width / 2, 1 + width / 2], ["linear probe", "kNN"])
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("outputs/demo"))
    parser.add_argument("--epochs", type=int, help="of pretraining; the recipe's by default")
    arguments = parser.parse_args()
    folder = arguments.output.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    extra = [f"max_epochs={arguments.epochs}"] if arguments.epochs else []
    began = time.perf_counter()
    results = [pretrain_and_probe(variant, folder, extra) for variant in VARIANTS]
    plot(results, folder / "demo.png")
    (folder / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    report = folder / "report.html"
    run(
        *("-m", "solo_margins.lens", "report"),
        *(str(Path(result["checkpoint"]).parent) for result in results),
        f"output={report}",
    )

    print(f"\n{'':34s} {'linear probe':>12s} {'kNN (k=20)':>11s} {'pretraining':>12s}")
    for result in results:
        print(
            f"{VARIANTS[result['variant']]:34s} {result['linear']:>10s} % {result['knn']:>9s} % "
            f"{result['pretraining_seconds']:>10s} s"
        )
    print("One seed on 1,433 images: differences below a point or two mean nothing.")
    for result in results:
        print(f"\n{VARIANTS[result['variant']]}")
        print(f"  checkpoint  {result['checkpoint']}")
        print(f"  logs        {result['logs']}")
    print(f"\nreport   {report}")
    print(f"plot     {folder / 'demo.png'}")
    print(f"results  {folder / 'results.json'}")
    print(f"It took {(time.perf_counter() - began) / 60:.1f} minutes.")


if __name__ == "__main__":
    main()
