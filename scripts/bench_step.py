"""Measure whole training steps with margins against those of the host's own methods.

A step with all margins on, and one in one direction only (the student sees the strong view, the
teacher the weak one), each against the host's symmetric step. All run in turn on the same batch and
the same networks in one process: forward, backward, optimiser and teacher update. The best time of
each counts. Two copies of the networks would not do: the times of equal copies differ by some
percent.

    python scripts/bench_step.py
"""

import argparse
import math
import random
import time
from typing import Any

import torch
from omegaconf import OmegaConf

from solo_margins import host

BARS = {"all margins": 1.02, "one direction": 0.6}
PARENTS = {"mocov3_margin": "mocov3", "byol_curv": "byol"}
ALL_MARGINS = {
    "angular": 0.2,
    "subtractive": 0.1,
    "positive_scale": 2.0,
    "curvature": 1.5,
}
WITH_NEGATIVES = {"attenuation": 0.5}


def settings(method: str, backbone: str, batch_size: int) -> Any:
    """Return the configuration of one method, with the heads of its recipe."""
    cfg = OmegaConf.create(
        {
            "name": method,
            "method": method,
            "backbone": {"name": backbone, "kwargs": {}},
            "method_kwargs": {
                "proj_hidden_dim": 2048,
                "proj_output_dim": 128,
                "pred_hidden_dim": 2048,
                "temperature": 0.2,
            },
            "momentum": {"base_tau": 0.99, "final_tau": 1.0, "classifier": False},
            "data": {"dataset": "custom", "num_classes": 10, "train_path": "none"},
            "optimizer": {
                "name": "sgd",
                "batch_size": batch_size,
                "lr": 0.06,
                "weight_decay": 5e-4,
                "classifier_lr": 0.1,
                "kwargs": {"momentum": 0.9},
            },
            "scheduler": {"name": "none"},
            "max_epochs": 1,
        }
    )
    cfg.data.update({"num_large_crops": 2, "num_small_crops": 0})
    cfg.method_kwargs.margins = ALL_MARGINS
    if method.endswith("_margin"):
        cfg.method_kwargs.margins.update(WITH_NEGATIVES)
    return cfg


class Stepper:
    """One method with its optimiser, ready to take its own steps or those of its parent."""

    def __init__(self, method: str, backbone: str, batch_size: int) -> None:
        torch.manual_seed(0)
        self.method = host.METHODS[method](settings(method, backbone, batch_size))
        self.parent = host.METHODS[PARENTS[method]]
        # Metrics go nowhere without a trainer.
        self.method.log = self.method.log_dict = lambda *args, **kwargs: None
        self.optimizer = torch.optim.SGD(self.method.parameters(), lr=0.06, momentum=0.9)

    def step(self, kind: str, batch: list[Any]) -> None:
        """Take one training step: the host's, or ours in both directions or in one."""
        self.optimizer.zero_grad(set_to_none=True)
        self.method.cfg.method_kwargs.symmetric = kind != "one direction"
        owner = self.parent if kind == "host" else type(self.method)
        owner.training_step(self.method, batch, 0).backward()
        self.optimizer.step()
        for online, momentum in self.method.momentum_pairs:
            self.method.momentum_updater.update(online, momentum)


def measure(
    method: str, backbone: str, batch_size: int, size: int, repeats: int
) -> dict[str, float]:
    """Return the best time of each kind of step, in seconds."""
    generator = torch.Generator().manual_seed(0)
    views = [torch.randn(batch_size, 3, size, size, generator=generator) for _ in range(2)]
    batch = [torch.arange(batch_size), views, torch.arange(batch_size) % 10]
    stepper = Stepper(method, backbone, batch_size)
    kinds = ["host", *BARS]
    best = dict.fromkeys(kinds, math.inf)
    for kind in kinds:
        stepper.step(kind, batch)
    shuffle = random.Random(0).shuffle
    for _ in range(repeats):
        shuffle(kinds)
        for kind in kinds:
            start = time.perf_counter()
            stepper.step(kind, batch)
            best[kind] = min(best[kind], time.perf_counter() - start)
    return best


def main() -> None:
    """Run the benchmark and print the ratios for each method and backbone."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(
        f"solo-learn: {host.form()} version, torch {torch.__version__}, {arguments.threads} threads"
    )
    for method in PARENTS:
        for backbone, batch_size, size in (("narrow_resnet18", 256, 16), ("resnet18", 64, 32)):
            best = measure(method, backbone, batch_size, size, arguments.repeats)
            print(
                f"{method}, {backbone}, batch {batch_size}, {size} px: host's symmetric step "
                f"{best['host'] * 1e3:.1f} ms"
            )
            for kind, bar in BARS.items():
                ratio = best[kind] / best["host"]
                verdict = "ok" if ratio <= bar else "MISSED"
                print(f"  {kind}: {best[kind] * 1e3:.1f} ms, {ratio:.3f}x (bar {bar}) {verdict}")


if __name__ == "__main__":
    main()
