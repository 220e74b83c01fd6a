"""Compare the fast probe with the slow one: accuracy and time on the same checkpoints.

Pretrains one backbone for every seed, or takes the checkpoints that are named, and probes each of
them by ``main_linear.py``'s function and by the fast probe with several numbers of passes.

    python scripts/bench_probe.py --seeds 1 2 3 --pretrain max_epochs=20
    python scripts/bench_probe.py --checkpoints <checkpoint> --probe data=cifar10 \\
        data.train_path=<folder> data.fraction=0.1
"""

import argparse
import contextlib
import io
import logging
import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from solo_margins import training
from solo_margins.evaluation.probe import fast_probe
from solo_margins.resolvers import composed
from solo_margins.versions import form

QUIET = ["+enable_progress_bar=false", "+enable_model_summary=false"]
GAP = 0.5
RATIO = 20


def silently(function: Any, *arguments: Any) -> Any:
    """Call a function without its output."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return function(*arguments)


def timed(function: Any, *arguments: Any) -> tuple[Any, float]:
    """Return what a function returns and how many seconds it took."""
    began = time.perf_counter()
    return silently(function, *arguments), time.perf_counter() - began


def pretrained(config: str, seed: int, folder: str, settings: list[str]) -> Path:
    """Pretrain and return the checkpoint."""
    overrides = [f"seed={seed}", f"checkpoint.dir={folder}", *QUIET, *settings]
    return silently(training.pretrain, composed(config, overrides)).checkpoint


def compare(checkpoint: Path, folder: str, passes: list[int], settings: list[str]) -> Any:
    """Return accuracy and seconds of the slow probe, and of the fast one by number of passes."""
    named = [f"pretrained_feature_extractor={checkpoint}", f"checkpoint.dir={folder}", *settings]
    cfg = composed("linear.yaml", [*named, *QUIET])
    found, seconds = timed(training.linear, cfg)
    slow = (found.metrics["val_acc1"], seconds)
    print(f"{checkpoint.name}: slow {slow[0]:.2f} % in {seconds:.1f} s", flush=True)
    fast = {}
    for number in passes:
        cfg = composed("linear.yaml", named)
        result, seconds = timed(fast_probe, cfg, number)
        fast[number] = (result.acc1, seconds)
        print(
            f"  passes={number}: {result.acc1:.2f} % in {seconds:.1f} s "
            f"({result.extraction_seconds:.1f} s for features), gap {result.acc1 - slow[0]:+.2f}, "
            f"{slow[1] / seconds:.1f}x",
            flush=True,
        )
    return slow, fast


def main() -> None:
    """Run the comparison and print gap and ratio for each number of passes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoints", nargs="*", type=Path, default=[])
    parser.add_argument("--config-name", default="mocov3_margin.yaml")
    parser.add_argument("--seeds", nargs="*", type=int, default=[1, 2, 3])
    parser.add_argument("--pretrain", nargs="*", default=[], help="settings of the pretraining")
    parser.add_argument("--probe", nargs="*", default=[], help="settings of both probes")
    parser.add_argument("--passes", nargs="*", type=int, default=[0, 1, 4])
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    print(
        f"solo-learn: {form()} version, torch {torch.__version__}, "
        f"{torch.get_num_threads()} threads"
    )
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = arguments.checkpoints or [
            pretrained(arguments.config_name, seed, folder, arguments.pretrain)
            for seed in arguments.seeds
        ]
        found = [
            compare(checkpoint, folder, arguments.passes, arguments.probe)
            for checkpoint in checkpoints
        ]
    print(f"\nslow probe: {statistics.mean(slow[0] for slow, _ in found):.2f} %")
    for number in arguments.passes:
        gaps = [fast[number][0] - slow[0] for slow, fast in found]
        ratios = [slow[1] / fast[number][1] for slow, fast in found]
        gap, ratio = statistics.mean(gaps), statistics.mean(ratios)
        met = "ok" if abs(gap) <= GAP and ratio >= RATIO else "MISSED"
        print(
            f"passes={number}: mean gap {gap:+.2f} points (largest {max(map(abs, gaps)):.2f}), "
            f"{ratio:.1f}x faster (bars {GAP} and {RATIO}x) {met}"
        )


if __name__ == "__main__":
    main()
