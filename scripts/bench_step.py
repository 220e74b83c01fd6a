"""Measure whole training steps with margins against those of the host's own methods.

A step with all margins on, and one in one direction only (the student sees the strong view, the
teacher the weak one), each against the host's symmetric step. All run in turn on the same batch and
the same networks in one process: forward, backward, optimiser and teacher update. The best time of
each counts. Two copies of the networks would not do: the times of equal copies differ by some
percent.

With a folder of small images, steps of real runs are measured instead: reading, views, callbacks
and logging included, by every way to read images and in two precisions. The runs take turns, and
the fastest turn of each counts.

    python scripts/bench_step.py
    python scripts/bench_step.py --device cuda
    taskset -c 0 python scripts/bench_step.py --images cifar10/train --threads 1
"""

import argparse
import contextlib
import io
import itertools
import logging
import math
import random
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from solo.methods import METHODS
from tqdm import tqdm

from solo_margins.data.datamodule import RunData
from solo_margins.resolvers import composed
from solo_margins.training.checked_config import checked_pretraining
from solo_margins.training.fit import fit
from solo_margins.training.pretrain import build_method, parsed_pretraining
from solo_margins.training.run_folder import Run, choose_run
from solo_margins.versions import form

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

    def __init__(self, method: str, backbone: str, batch_size: int, device: str) -> None:
        torch.manual_seed(0)
        self.method = METHODS[method](settings(method, backbone, batch_size)).to(device)
        self.parent = METHODS[PARENTS[method]]
        # Metrics go nowhere without a trainer.
        self.method.log = self.method.log_dict = lambda *args, **kwargs: None
        self.optimizer = torch.optim.SGD(self.method.parameters(), lr=0.06, momentum=0.9)

    def step(self, kind: str, batch: list[Any]) -> None:
        """Take one training step: the host's, or ours in both directions or in one."""
        self.optimizer.zero_grad(set_to_none=True)
        self.method.margin_settings = replace(
            self.method.margin_settings, symmetric=kind != "one direction"
        )
        owner = self.parent if kind == "host" else type(self.method)
        owner.training_step(self.method, batch, 0).backward()
        self.optimizer.step()
        for online, momentum in self.method.momentum_pairs:
            self.method.momentum_updater.update(online, momentum)


def measure(
    method: str, backbone: str, batch_size: int, size: int, repeats: int, device: str
) -> dict[str, float]:
    """Return the best time of each kind of step, in seconds."""
    generator = torch.Generator().manual_seed(0)
    views = [
        torch.randn(batch_size, 3, size, size, generator=generator).to(device) for _ in range(2)
    ]
    numbers = torch.arange(batch_size, device=device)
    batch = [numbers, views, numbers % 10]
    stepper = Stepper(method, backbone, batch_size, device)
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
            if device == "cuda":
                torch.cuda.synchronize()
            best[kind] = min(best[kind], time.perf_counter() - start)
    return best


FORMATS = ("image_folder", "dali", "tensors")
PRECISIONS = ("32-true", "bf16-mixed")
# A network for experiments on CPUs: a quarter of ResNet-18's width, half of its depth.
SMALL_NETWORK = (
    "backbone=narrow_resnet10",
    "+backbone.kwargs.width=16",
    "+backbone.kwargs.stem_stride=2",
    "method_kwargs.proj_hidden_dim=512",
    "method_kwargs.pred_hidden_dim=512",
    "optimizer.batch_size=128",
)


def seconds_of_a_step(
    images: Path, steps: int, format_: str, precision: str, scratch: str, device: str
) -> float:
    """Return the median time of a step of a real run, after its first third."""
    settings = (
        *("data=cifar10", f"data.train_path='{images}'", "data.val_path=null"),
        *SMALL_NETWORK,
        f"accelerator={'gpu' if device == 'cuda' else 'cpu'}",
        f"dali.device={'gpu' if device == 'cuda' else 'cpu'}",
        *(f"data.format={format_}", "data.num_workers=1"),
        *(f"precision={precision}", f"max_steps={steps}"),
        f"checkpoint.dir='{scratch}'",
    )
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        _, ends = timed_run(*settings)
    return seconds_between(ends)


def seconds_between(ends: list[float]) -> float:
    """Return the median time of a step, after the first third."""
    steady = ends[len(ends) // 3 :]
    return statistics.median(later - earlier for earlier, later in itertools.pairwise(steady))


def timed_run(*settings: str) -> tuple[Run, list[float]]:
    """Train MoCo v3 with margins; return what it leaves behind and when each step ended."""
    cfg = parsed_pretraining(checked_pretraining(composed("mocov3_margin", settings)))
    model = build_method(cfg)
    ends: list[float] = []
    hosts_own = model.on_train_batch_end

    def note(*arguments: Any, **named: Any) -> None:
        hosts_own(*arguments, **named)
        ends.append(time.perf_counter())

    model.on_train_batch_end = note
    data = RunData(cfg, pretraining=True)
    run = choose_run(cfg, kind=cfg.method, unnamed="bench")
    return fit(cfg, model, data, run, classifier="Online classifier"), ends


def compare_formats(images: Path, steps: int, turns: int, device: str) -> None:
    """Print the time of a step for every way to read images, and ratios."""
    cells = [(precision, format_) for precision in PRECISIONS for format_ in FORMATS]
    best = dict.fromkeys(cells, math.inf)
    shuffle = random.Random(0).shuffle
    with tempfile.TemporaryDirectory() as scratch, tqdm(total=turns * len(cells)) as progress:
        for _ in range(turns):
            shuffle(cells)
            for precision, format_ in cells:
                seconds = seconds_of_a_step(images, steps, format_, precision, scratch, device)
                best[precision, format_] = min(best[precision, format_], seconds)
                progress.update()
    print(f"mocov3_margin, narrow_resnet10 of width 16, batch 128, {images}")
    for (precision, format_), seconds in best.items():
        ratios = ", ".join(
            f"{best['32-true', other] / seconds:.2f}x {other} 32-true"
            for other in FORMATS
            if (precision, format_) != ("32-true", other)
        )
        print(f"  {precision:>10} {format_:>12}: {seconds * 1e3:6.1f} ms; {ratios}")


def main() -> None:
    """Run the benchmark and print the ratios for each method and backbone."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--images", type=Path, help="small images, one folder a class")
    parser.add_argument("--steps", type=int, default=60, help="of a run with --images")
    parser.add_argument("--turns", type=int, default=3, help="of every run with --images")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        sys.exit("Error: --device=cuda needs a GPU, and PyTorch sees none.")
    torch.set_num_threads(arguments.threads)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    print(f"solo-learn: {form()} version, torch {torch.__version__}, {arguments.threads} threads")
    if arguments.images is not None:
        images = arguments.images.absolute()
        compare_formats(images, arguments.steps, arguments.turns, arguments.device)
        return
    for method in PARENTS:
        for backbone, batch_size, size in (("narrow_resnet18", 256, 16), ("resnet18", 64, 32)):
            best = measure(method, backbone, batch_size, size, arguments.repeats, arguments.device)
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
