"""Measure time, memory and launches of the SimCLR loss, forward and backward, against its peers.

All contenders run in turn within one process, several times; the best time of each counts. The
floor is what no exact loss can avoid: normalising, one matrix product forward and two backward.
Ours stays below three products where it uses that the similarity matrix is symmetric.

    python scripts/bench_losses.py --output docs/benchmarks

Contenders named "query-key" compute MoCo v3's loss of the same vectors, the first half against the
second: torch's chunked cross-entropy cannot leave out the row itself, as SimCLR's loss does.
Launches are the operators that are not views, counted in one step.

    python scripts/bench_losses.py --device cuda

measures on a GPU. The peers come with ``pip install ".[bench]"``; solo-learn's own SimCLR loss is
taken where its repository can be imported, otherwise its formula is written out.
"""

import argparse
import csv
import importlib.metadata
import math
import platform
import random
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from launches import Launches
from torch import Tensor

from solo_margins.losses import (
    Margins,
    engine,
    mocov3_margin_loss_func,
    simclr_margin_loss_func,
)
from solo_margins.losses.margins import ContrastSpec

DIMENSIONS = 128
TEMPERATURE = 0.1
ALL_MARGINS = Margins(0.2, 0.1, 2.0, 1.5, 0.5)
PAIRS = (256, 1024, 2048, 4096)
TURNS = 400
OFF_SCALE = 100.0  # times the floor; beyond it a contender is written into the plot, not drawn
SECONDS_EACH = 5.0  # after which a contender is not repeated any more, two turns at least
Step = Callable[[Tensor], None]

OURS = "ours, all margins"
OFF = "ours, margins off"
METRIC = "pytorch-metric-learning"
METRIC_CHUNKED = "pytorch-metric-learning, in chunks"
QUERY_KEY = "query-key: "
# Chunks of the peers that work in chunks, of rows.
CHUNK = 256
# What all margins on may cost, as multiples of the named contender, by number of pairs.
BARS = {
    "floor": {256: 1.8, 1024: 1.5, 2048: 1.25, 4096: 1.25},
    "solo-learn": {256: 1 / 1.5, 1024: 1 / 1.5, 2048: 1 / 2.5, 4096: 1 / 2.5},
    "lightly": {256: 1 / 1.5, 1024: 1 / 1.5, 2048: 1 / 2.5, 4096: 1 / 2.5},
    "arccos form": {256: 1 / 3, 1024: 1 / 3, 2048: 1 / 6, 4096: 1 / 6},
    OFF: {256: 1.03, 1024: 1.03, 2048: 1.03, 4096: 1.03},
}


def view_ids(z: Tensor) -> Tensor:
    """Return the sample of each row of two stacked views."""
    return torch.arange(len(z) // 2, device=z.device).repeat(2)


def floor(z: Tensor) -> None:
    """Run what every exact loss must: normalisation, one product forward, two backward."""
    unit = F.normalize(z, dim=1)
    similarity = unit @ unit.t()
    gradient = similarity @ unit
    gradient += similarity.t() @ unit
    (gradient - (gradient * unit).sum(dim=1, keepdim=True) * unit) / z.norm(dim=1, keepdim=True)


def arccos_form(z: Tensor) -> Tensor:
    """Return the loss as the paper's algorithms write it, every angle by arccos."""
    margins, size = ALL_MARGINS, len(z)
    unit = F.normalize(z, dim=1)
    ids = view_ids(z)
    itself = torch.eye(size, dtype=torch.bool, device=z.device)
    positive = (ids.unsqueeze(0) == ids.unsqueeze(1)) & ~itself
    target = positive.float()
    angle = (unit @ unit.t()).clamp(-1 + 1e-6, 1 - 1e-6).acos()

    def logits(theta: Tensor) -> Tensor:
        shifted = (theta + margins.angular * target).cos() - margins.subtractive * target
        return (shifted / TEMPERATURE).masked_fill(itself, -math.inf)

    with torch.no_grad():
        q = (logits(angle).softmax(dim=1) * target).sum(dim=1, keepdim=True)
        curve = 1 - (angle / math.pi).abs() ** margins.curvature
        weight = torch.where(positive, margins.positive_scale * curve, 1.0)
        weight = weight / (1 - margins.attenuation * q)
    angle = weight * angle + ((1 - weight) * angle).detach()
    return F.cross_entropy(logits(angle), target.argmax(dim=1))


def solo_learn_loss() -> tuple[str, Callable[[Tensor, Tensor, float], Tensor]]:
    """Return solo-learn's own loss, or its formula where its repository is not installed."""
    try:
        from solo.losses.simclr import simclr_loss_func

        simclr_loss_func(torch.eye(4), torch.tensor([0, 1, 0, 1]), TEMPERATURE)
        return "its own code", simclr_loss_func
    except Exception:  # absent, or a version that does not import on this stack

        def formula(z: Tensor, ids: Tensor, temperature: float) -> Tensor:
            unit = F.normalize(z, dim=1)
            exponentials = (unit @ unit.t() / temperature).exp()
            same = ids.unsqueeze(0) == ids.unsqueeze(1)
            itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
            positive = (exponentials * (same & ~itself)).sum(dim=1)
            negative = (exponentials * ~same).sum(dim=1)
            return -(positive / (positive + negative)).log().mean()

        return "its formula", formula


def solo_learn_query_key(z: Tensor) -> Tensor:
    """Return MoCo v3's loss of the first half of the rows against the second, by its formula."""
    query, key = z.chunk(2)
    logits = F.normalize(query, dim=1) @ F.normalize(key.detach(), dim=1).t() / TEMPERATURE
    numbers = torch.arange(len(query), device=z.device)
    return F.cross_entropy(logits, numbers) * (2 * TEMPERATURE)


def torch_losses() -> dict[str, Callable[[Tensor], Tensor]]:
    """Return MoCo v3's loss by torch's own cross-entropy of a product, whole and in chunks."""
    if not hasattr(F, "linear_cross_entropy") or not hasattr(torch.nn, "LinearCrossEntropyOptions"):
        return {}

    def loss_with(options: Any) -> Callable[[Tensor], Tensor]:
        def loss(z: Tensor) -> Tensor:
            query, key = z.chunk(2)
            value = F.linear_cross_entropy(
                F.normalize(query, dim=1) / TEMPERATURE,
                F.normalize(key.detach(), dim=1),
                torch.arange(len(query), device=z.device),
                options=options,
            )
            return value * (2 * TEMPERATURE)

        return loss

    automatic = torch.nn.LinearCrossEntropyOptions()
    in_chunks = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=CHUNK)
    return {
        "torch, whole": loss_with(None),
        "torch, automatic chunks": loss_with(automatic),
        f"torch, chunks of {CHUNK}": loss_with(in_chunks),
    }


def ours_query_key(margins: Margins) -> Step:
    """Return a step of our loss of MoCo v3, the first half of the rows against the second."""

    def loss(z: Tensor) -> Tensor:
        query, key = z.chunk(2)
        return mocov3_margin_loss_func(query, key.detach(), TEMPERATURE, margins)

    return backward_of(loss)


def metric_learning_steps() -> dict[str, Step]:
    """Return the steps of pytorch-metric-learning, of which the second works in chunks."""
    try:
        from pytorch_metric_learning import losses
    except ImportError:
        return {}
    loss = losses.NTXentLoss(temperature=TEMPERATURE)
    steps = {METRIC: backward_of(lambda z: loss(z, view_ids(z)))}
    if hasattr(losses, "anchor_batched_backward"):

        def in_chunks(z: Tensor) -> None:
            z.grad = None
            losses.anchor_batched_backward(loss, z, view_ids(z), CHUNK)

        steps[METRIC_CHUNKED] = in_chunks
    return steps


def report_missing() -> None:
    """Print which peers are left out because they are not installed."""
    if not torch_losses():
        print(
            f"torch {torch.__version__} has no chunked linear_cross_entropy (since 2.13): left out"
        )
    if find_spec("lightly") is None:
        print('lightly is not installed: left out (`pip install ".[bench]"` in this repository)')
    steps = metric_learning_steps()
    if not steps:
        print("pytorch-metric-learning is not installed: left out")
    elif METRIC_CHUNKED not in steps:
        version = importlib.metadata.version("pytorch-metric-learning")
        print(f"pytorch-metric-learning {version} has no anchor_batched_backward: left out")


def backward_of(loss: Callable[[Tensor], Tensor]) -> Step:
    """Return a step that runs a loss forward and backward."""

    def step(z: Tensor) -> None:
        z.grad = None
        loss(z).backward()

    return step


def contenders(pairs: int, compiled: bool) -> dict[str, Step]:
    """Return every contender at this size by name."""

    def ours(margins: Margins) -> Step:
        return backward_of(lambda z: simclr_margin_loss_func(z, 2, TEMPERATURE, margins))

    spec = ContrastSpec(TEMPERATURE, ALL_MARGINS)

    def in_tiles(tile_size: int) -> Step:
        return backward_of(lambda z: engine.views(z, 2, spec, tile_size))

    _, hosts = solo_learn_loss()
    found: dict[str, Step] = {
        "floor": floor,
        OURS: ours(ALL_MARGINS),
        OFF: ours(Margins()),
        "ours, by ids on the device": backward_of(lambda z: engine.same_id(z, view_ids(z), spec)),
        "ours, full matrix": in_tiles(2 * pairs),
        "ours, tiles of 256": in_tiles(256),
        "solo-learn": backward_of(lambda z: hosts(z, view_ids(z), TEMPERATURE)),
        "arccos form": backward_of(arccos_form),
        QUERY_KEY + OURS: ours_query_key(ALL_MARGINS),
        QUERY_KEY + OFF: ours_query_key(Margins()),
        QUERY_KEY + "solo-learn": backward_of(solo_learn_query_key),
    }
    for name, loss in torch_losses().items():
        found[QUERY_KEY + name] = backward_of(loss)
    if compiled:
        loss = torch.compile(lambda z: simclr_margin_loss_func(z, 2, TEMPERATURE, ALL_MARGINS))
        found["ours, torch.compile"] = backward_of(loss)
    if find_spec("lightly") is not None:
        from lightly.loss import NTXentLoss

        lightly = NTXentLoss(temperature=TEMPERATURE)
        found["lightly"] = backward_of(lambda z: lightly(*z.chunk(2)))
    for name, step in metric_learning_steps().items():
        if name == METRIC_CHUNKED or pairs <= 256:  # whole, it wants 34 GB at 1024 pairs
            found[name] = step
    return found


def embeddings(pairs: int, device: str = "cpu") -> Tensor:
    """Return two views of so many samples that resemble each other, as in training."""
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(pairs, DIMENSIONS, generator=generator)
    second = first + 0.5 * torch.randn(pairs, DIMENSIONS, generator=generator)
    return torch.cat([first, second]).to(device).requires_grad_()


def measure(
    pairs: int, seconds_each: float, compiled: bool, device: str = "cpu"
) -> dict[str, float]:
    """Return the best time of every contender in seconds, all run in turn.

    Args:
        pairs: of vectors.
        seconds_each: after which a contender is not repeated any more.
        compiled: whether there is one by ``torch.compile``.
        device: ``"cpu"`` or ``"cuda"``; there the time of one that does not fit is infinite.
    """
    z = embeddings(pairs, device)
    steps = contenders(pairs, compiled)
    best = dict.fromkeys(steps, math.inf)
    spent = dict.fromkeys(steps, 0.0)
    for name in best:  # the first run warms up
        try:
            steps[name](z)
        except torch.cuda.OutOfMemoryError:
            del steps[name]
    # On and off differ by a hair: three times as many turns steady their minimum.
    order = [*steps.items(), *2 * [(n, s) for n, s in steps.items() if n in (OURS, OFF)]]
    shuffle = random.Random(0).shuffle
    for turn in range(TURNS):
        shuffle(order)  # who ran before leaves its mark on caches
        for name, step in order:
            if turn >= 2 and spent[name] > seconds_each:
                continue
            if device != "cpu":
                torch.cuda.synchronize()
            start = time.perf_counter()
            step(z)
            if device != "cpu":
                torch.cuda.synchronize()
            seconds = time.perf_counter() - start
            best[name] = min(best[name], seconds)
            spent[name] += seconds
    return best


def launches(pairs: int, device: str) -> dict[str, Launches]:
    """Return what one step of each contender launches; compiled code cannot be counted."""
    z = embeddings(pairs, device)
    counts: dict[str, Launches] = {}
    for name, step in contenders(pairs, compiled=False).items():
        z.grad = None
        with Launches() as counted:
            step(z)
        counts[name] = counted
    return counts


def report_launches(pairs: int, device: str) -> None:
    """Print how many operators each contender launches and how often it waits for the device."""
    print(f"\nLaunches of one step, {pairs} pairs:")
    for name, counted in launches(pairs, device).items():
        operators, waits = counted.operators.total(), counted.waits.total()
        print(f"  {name:34s} {operators:6d} operators {waits:4d} waits")


def peak_gpu_memory(kind: str, pairs: int) -> float:
    """Return MiB above the start of one step on the GPU, infinite where it does not fit."""
    z = embeddings(pairs, "cuda")
    step = contenders(pairs, compiled=False)[kind]
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    start = torch.cuda.memory_allocated()
    try:
        step(z)
    except torch.cuda.OutOfMemoryError:
        return math.inf
    return (torch.cuda.max_memory_allocated() - start) / 2**20


def peak_memory(kind: str, pairs: int) -> tuple[float, float]:
    """Return MiB above the start and seconds of one step, measured in a process of its own."""
    command = [sys.executable, __file__, "--one-step", kind, str(pairs)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    mebibytes, seconds = output.split()[-2:]
    return float(mebibytes), float(seconds)


def one_step(kind: str, pairs: int) -> None:
    """Print peak MiB above the start and seconds of one step of one contender."""
    torch.set_num_threads(2)
    warm_up = contenders(64, compiled=False)[kind]
    warm_up(embeddings(64))
    z = embeddings(pairs)
    step = contenders(pairs, compiled=False)[kind]
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the imports
    start = process_status("VmRSS")
    began = time.perf_counter()
    step(z)
    seconds = time.perf_counter() - began
    print((process_status("VmHWM") - start) / 1024, seconds)


def process_status(field: str) -> int:
    """Return a figure of Linux about this process's memory, in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(field)))


def report_gpu_memory(pairs: int) -> None:
    """Print the peak memory of every contender on the GPU."""
    print(f"\nMemory of one step above the start, {pairs} pairs:")
    for name in contenders(pairs, compiled=False):
        print(f"  {name:34s} {peak_gpu_memory(name, pairs):8.0f} MiB")


def report_memory() -> None:
    """Print peak memory and the time of large batches against the bars."""
    print("\nMemory of one step above the start, in a process of its own:")
    host, _ = peak_memory("solo-learn", 2048)
    for name in (OURS, "ours, full matrix", "ours, tiles of 256"):
        mebibytes, _ = peak_memory(name, 2048)
        print(f"  2048 pairs  {name:24s} {mebibytes:8.0f} MiB = {mebibytes / host:5.0%} of")
    print(f"  2048 pairs  {'solo-learn':24s} {host:8.0f} MiB   (bar for ours: 40%)")
    full, full_seconds = peak_memory("ours, full matrix", 4096)
    large, large_seconds = peak_memory(OURS, 16384)
    ratio = (large_seconds / 16384**2) / (full_seconds / 4096**2)
    print(f"  4096 pairs  {'ours, full matrix':24s} {full:8.0f} MiB, {full_seconds:6.2f} s")
    print(
        f" 16384 pairs  {OURS:24s} {large:8.0f} MiB, {large_seconds:6.2f} s "
        f"(bar: 1536 MiB); per pair-product {ratio:.2f}x of the full matrix (bar: 1.6x)"
    )


def print_table(threads: int, pairs: int, best: dict[str, float]) -> None:
    """Print times, ratios to the floor and how ours stands against the bars."""
    print(f"\n{pairs} pairs, D = {DIMENSIONS}, {threads} thread(s)")
    for name, seconds in sorted(best.items(), key=lambda item: item[1]):
        bar = BARS.get(name, {}).get(pairs)
        note = ""
        if bar is not None:
            ratio = best[OURS] / seconds
            verdict = "ok" if ratio <= bar else "MISSED"
            note = f"ours / this = {ratio:5.2f} (bar {bar:4.2f}) {verdict}"
        print(f"  {name:34s} {seconds * 1e3:10.2f} ms {seconds / best['floor']:7.2f}x  {note}")


def write_plot(rows: list[dict[str, str]], path: Path) -> None:
    """Draw time over the floor against batch size, one panel for each number of threads."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    threads = sorted({row["threads"] for row in rows})
    figure, axes = plt.subplots(1, len(threads), figsize=(6 * len(threads), 4.5), sharey=True)
    for axis, count in zip([axes] if len(threads) == 1 else axes, threads, strict=True):
        chosen = [row for row in rows if row["threads"] == count]
        for name in dict.fromkeys(row["contender"] for row in chosen):
            if name.startswith(QUERY_KEY):  # another loss
                continue
            points = [
                (int(row["pairs"]), float(row["times_floor"]))
                for row in chosen
                if row["contender"] == name
            ]
            if max(ratio for _, ratio in points) > OFF_SCALE:
                note = f"{name}: {points[0][1]:.0f} at {points[0][0]} pairs"
                axis.text(0.02, 0.95, note, transform=axis.transAxes, fontsize=8)
                continue
            style = "-" if name.startswith("ours") else "--"
            axis.plot(*zip(*points, strict=True), style, marker="o", label=name)
        axis.set(xscale="log", yscale="log", xlabel="pairs", title=f"{count} thread(s)")
        axis.set_xticks([256, 1024, 2048, 4096], ["256", "1024", "2048", "4096"])
        axis.minorticks_off()
        axis.set_yticks([0.5, 1, 2, 4, 8, 16], ["0.5", "1", "2", "4", "8", "16"])
        axis.grid(alpha=0.3)
    (axes if len(threads) == 1 else axes[0]).set_ylabel("time, forward + backward / floor")
    figure.legend(
        *(axes if len(threads) == 1 else axes[0]).get_legend_handles_labels(),
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
    )
    figure.suptitle(f"SimCLR loss, D = {DIMENSIONS}, float32")
    figure.tight_layout()
    figure.savefig(path, dpi=120, bbox_inches="tight")


def main() -> None:
    """Run the benchmark and write its table, CSV and plot."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, nargs="+", default=list(PAIRS))
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=SECONDS_EACH, help="for each contender")
    parser.add_argument("--output", type=Path, default=Path("outputs/bench_losses"))
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--no-memory", action="store_true", help="leave the memory part out")
    parser.add_argument("--only-launches", action="store_true", help="count, but do not measure")
    parser.add_argument("--one-step", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one_step:
        one_step(arguments.one_step[0], int(arguments.one_step[1]))
        return

    how, _ = solo_learn_loss()
    print(f"torch {torch.__version__}, {platform.machine()}, solo-learn: {how}")
    report_missing()
    device = arguments.device
    report_launches(min(arguments.pairs), device)
    if arguments.only_launches:
        return
    rows: list[dict[str, str]] = []
    for threads in arguments.threads:
        torch.set_num_threads(threads)
        for pairs in arguments.pairs:
            best = measure(pairs, arguments.seconds, not arguments.no_compile, device)
            print_table(threads, pairs, best)
            rows += [
                {
                    "threads": str(threads),
                    "pairs": str(pairs),
                    "contender": name,
                    "milliseconds": f"{seconds * 1e3:.3f}",
                    "times_floor": f"{seconds / best['floor']:.3f}",
                }
                for name, seconds in best.items()
            ]
    if not arguments.no_memory and device == "cpu":
        report_memory()
    elif not arguments.no_memory:
        report_gpu_memory(max(arguments.pairs))
    arguments.output.mkdir(parents=True, exist_ok=True)
    with (arguments.output / "losses.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    write_plot(rows, arguments.output / "losses.png")
    print(f"\nWritten to {arguments.output / 'losses.csv'} and {arguments.output / 'losses.png'}")


if __name__ == "__main__":
    main()
