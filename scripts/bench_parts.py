"""Measure memory and time of training steps whose batches are encoded in parts.

For each batch size: a step of MoCo v3 with margins on the whole batch, and one in parts of
``--part`` images (``method_kwargs.simulated_ranks``). Memory is the peak of a process of its own
above what it had before its first step. Time is that of the processor, which a busy machine changes
little, in another process, where both steps take turns and the best of each counts.

    python scripts/bench_parts.py
    python scripts/bench_parts.py --batches 256 1024 --size 64 --backbone resnet18
"""

import argparse
import math
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from omegaconf import OmegaConf

import solo_margins

MIB = 2**20
# Linux counts kibibytes, macOS bytes.
RSS_UNIT = 1 if sys.platform == "darwin" else 1024


def configuration(arguments: argparse.Namespace, batch_size: int, parts: int) -> Any:
    """Return the configuration of a method, with the heads of its recipe."""
    is_narrow = arguments.backbone.startswith("narrow")
    return OmegaConf.create(
        {
            "name": "bench_parts",
            "method": "mocov3_margin",
            "backbone": {
                "name": arguments.backbone,
                "kwargs": {"width": arguments.width} if is_narrow else {},
            },
            "method_kwargs": {
                "proj_hidden_dim": 512,
                "proj_output_dim": 128,
                "pred_hidden_dim": 512,
                "temperature": 0.2,
                "margins": {"positive_scale": 2.0, "curvature": 1.5},
                "simulated_ranks": parts,
            },
            "momentum": {"base_tau": 0.99, "final_tau": 1.0, "classifier": False},
            "data": {
                "dataset": "custom",
                "num_classes": 10,
                "train_path": "none",
                "num_large_crops": 2,
                "num_small_crops": 0,
            },
            "optimizer": {
                "name": "sgd",
                "batch_size": batch_size,
                "lr": 0.06,
                "weight_decay": 5e-4,
                "classifier_lr": 0.1,
            },
            "scheduler": {"name": "none"},
            "max_epochs": 1,
        }
    )


def training_step(arguments: argparse.Namespace, batch_size: int, parts: int) -> Callable[[], None]:
    """Return a function that computes the gradients of one batch."""
    from solo.methods import METHODS

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    method = METHODS["mocov3_margin"](configuration(arguments, batch_size, parts))
    method = method.to(memory_format=torch.channels_last)
    # Metrics go nowhere without a trainer.
    method.log = method.log_dict = lambda *args, **kwargs: None
    numbers = torch.arange(batch_size)
    views = [torch.randn(batch_size, 3, arguments.size, arguments.size) for _ in range(2)]
    batch = [numbers, views, numbers % 10]

    def step() -> None:
        method.zero_grad(set_to_none=True)
        method.training_step(batch, 0).backward()

    return step


def peak_memory(arguments: argparse.Namespace, batch_size: int, parts: int) -> float:
    """Return the MiB that steps need at most, in a process that does nothing else."""
    solo_margins.register()
    step = training_step(arguments, batch_size, parts)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    step()
    step()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (after - before) * RSS_UNIT / MIB


def best_times(
    arguments: argparse.Namespace, batch_size: int, numbers_of_parts: list[int]
) -> list[float]:
    """Return the least processor time of a step for each number of parts, in seconds."""
    solo_margins.register()
    steps = [training_step(arguments, batch_size, parts) for parts in numbers_of_parts]
    best = [math.inf for _ in steps]
    for _ in range(arguments.repeats + 1):
        for index, step in enumerate(steps):
            start = time.process_time()
            step()
            best[index] = min(best[index], time.process_time() - start)
    return best


def main() -> None:
    """Print a table with a row for each batch size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, nargs="+", default=[256, 512, 1024, 2048, 4096])
    parser.add_argument("--part", type=int, default=256, help="images of a part")
    parser.add_argument("--whole-up-to", type=int, default=2048, help="largest undivided batch")
    parser.add_argument("--backbone", default="narrow_resnet10")
    parser.add_argument("--width", type=int, default=16, help="of a narrow backbone")
    parser.add_argument("--size", type=int, default=32, help="of an image, in pixels")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    print(
        f"mocov3_margin, {arguments.backbone}, {arguments.size} px, parts of {arguments.part}, "
        f"torch {torch.__version__}, threads: {arguments.threads}"
    )
    print("| batch | parts | MiB, whole | MiB, in parts | | CPU ms per image, whole | in parts | |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|")
    # A process for each measurement.
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes=1, maxtasksperchild=1) as pool:
        for batch_size in arguments.batches:
            parts = batch_size // arguments.part
            memory = pool.apply(peak_memory, (arguments, batch_size, parts))
            if batch_size > arguments.whole_up_to or parts == 1:
                [seconds] = pool.apply(best_times, (arguments, batch_size, [parts]))
                each = seconds / batch_size * 1e3
                if parts == 1:
                    cells = f"{memory:.0f} | | | {each:.3f} | | |"
                else:
                    cells = f"| {memory:.0f} | | | {each:.3f} | |"
            else:
                whole = pool.apply(peak_memory, (arguments, batch_size, 1))
                times = pool.apply(best_times, (arguments, batch_size, [1, parts]))
                undivided, divided = (seconds / batch_size * 1e3 for seconds in times)
                cells = (
                    f"{whole:.0f} | {memory:.0f} | {memory / whole:.2f}× | {undivided:.3f} | "
                    f"{divided:.3f} | {divided / undivided:.2f}× |"
                )
            print(f"| {batch_size} | {parts} | {cells}", flush=True)


if __name__ == "__main__":
    main()
