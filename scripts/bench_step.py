"""Measure a whole training step of mocov3_margin, all margins on, against the host's mocov3.

Both steps run in turn on the same batch and the same networks in one process: forward, backward,
optimiser and teacher update. The best time of each counts. Two copies of the networks would not do:
the times of equal copies differ by some percent.

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

BAR = 1.02
ALL_MARGINS = {
    "angular": 0.2,
    "subtractive": 0.1,
    "positive_scale": 2.0,
    "curvature": 1.5,
    "attenuation": 0.5,
}


def settings(method: str, backbone: str, batch_size: int, size: int) -> Any:
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
    if method.endswith("_margin"):
        cfg.method_kwargs.margins = ALL_MARGINS
    return cfg


class Stepper:
    """One method with its optimiser, ready to take its own steps or those of its parent."""

    def __init__(self, backbone: str, batch_size: int, size: int) -> None:
        torch.manual_seed(0)
        cfg = settings("mocov3_margin", backbone, batch_size, size)
        self.method = host.METHODS["mocov3_margin"](cfg)
        # Metrics go nowhere without a trainer.
        self.method.log = self.method.log_dict = lambda *args, **kwargs: None
        self.optimizer = torch.optim.SGD(self.method.parameters(), lr=0.06, momentum=0.9)

    def step(self, name: str, batch: list[Any]) -> None:
        """Take one training step of the named method."""
        self.optimizer.zero_grad(set_to_none=True)
        host.METHODS[name].training_step(self.method, batch, 0).backward()
        self.optimizer.step()
        for online, momentum in self.method.momentum_pairs:
            self.method.momentum_updater.update(online, momentum)


def measure(backbone: str, batch_size: int, size: int, repeats: int) -> dict[str, float]:
    """Return the best time of a step of either method, in seconds."""
    generator = torch.Generator().manual_seed(0)
    views = [torch.randn(batch_size, 3, size, size, generator=generator) for _ in range(2)]
    batch = [torch.arange(batch_size), views, torch.arange(batch_size) % 10]
    stepper = Stepper(backbone, batch_size, size)
    names = ["mocov3", "mocov3_margin"]
    best = dict.fromkeys(names, math.inf)
    for name in names:
        stepper.step(name, batch)
    shuffle = random.Random(0).shuffle
    for _ in range(repeats):
        shuffle(names)
        for name in names:
            start = time.perf_counter()
            stepper.step(name, batch)
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def main() -> None:
    """Run the benchmark and print the ratio for each backbone."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"solo-learn: {host.form()} form, torch {torch.__version__}, {arguments.threads} threads")
    for backbone, batch_size, size in (("narrow_resnet18", 256, 16), ("resnet18", 64, 32)):
        best = measure(backbone, batch_size, size, arguments.repeats)
        ratio = best["mocov3_margin"] / best["mocov3"]
        verdict = "ok" if ratio <= BAR else "MISSED"
        print(
            f"{backbone:16s} batch {batch_size}, {size} px: mocov3 {best['mocov3'] * 1e3:.1f} ms, "
            f"mocov3_margin {best['mocov3_margin'] * 1e3:.1f} ms, ratio {ratio:.3f} "
            f"(bar {BAR}) {verdict}"
        )


if __name__ == "__main__":
    main()
