"""Measure how fast pretraining gets its images: by DALI and from memory, against PIL.

All make the same views of the same images, of a folder with one folder a class; a run that
computes next to nothing takes them, so that the time is that of reading, decoding and augmenting.
Decoding a data set into memory, which is done once, does not count.
They take turns in one process, and the best turn of each counts.

    python scripts/bench_data.py                                  # photographs that are made up
    python scripts/bench_data.py --images cifar10/train --size 32
    python scripts/bench_data.py --device gpu                     # DALI decodes on the GPU
"""

import argparse
import copy
import importlib.util
import logging
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from PIL import Image
from tqdm import tqdm

from solo_margins.data.datamodule import RunData
from solo_margins.resolvers import composed
from solo_margins.training.checked_config import checked_pretraining
from solo_margins.training.pretrain import parsed_pretraining
from solo_margins.versions import form


class TakesImages(pl.LightningModule):
    """A model that only takes its batches, notes when, and keeps the first."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.progress = tqdm(total=batches, desc="batches", leave=False)
        self.times: list[float] = []
        self.first: Any = None

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        """Touch every view, so that it has to be there."""
        self.times.append(time.perf_counter())
        self.progress.update()
        self.first = self.first or copy.deepcopy(batch)
        return self.weight * sum(float(view[0, 0, 0, 0]) for view in batch[1])

    def configure_optimizers(self) -> Any:
        """Return what a trainer needs."""
        return torch.optim.SGD(self.parameters(), lr=0.0)


def made_up_photographs(folder: Path, number: int, size: int, classes: int = 2) -> Path:
    """Write JPEG files with shapes at all scales, as photographs have them."""
    generator = np.random.default_rng(0)
    for index in tqdm(range(number), desc="photographs", leave=False):
        pixels = np.zeros((size, size, 3))
        for scale in (4, 16, 64, size):
            coarse = generator.uniform(0, 255, (scale, scale, 3)).astype(np.uint8)
            pixels += np.asarray(
                Image.fromarray(coarse).resize((size, size), Image.Resampling.BICUBIC)
            )
        path = folder / f"class{index % classes}" / f"{index:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels / 4).astype(np.uint8)).save(path, quality=90)
    return folder


def run_data(reader: str, images: Path, arguments: argparse.Namespace) -> RunData:
    """Return the batches of a reader."""
    cfg = composed(
        "mocov3_margin",
        [
            "data=folder",
            f"data.train_path='{images}'",
            "data.val_path=null",
            f"data.format={reader}",
            f"data.num_workers={arguments.workers}",
            f"dali.device={arguments.device}",
            f"image.size={arguments.size}",
            f"optimizer.batch_size={arguments.batch}",
        ],
    )
    return RunData(parsed_pretraining(checked_pretraining(cfg)), pretraining=True)


def take_batches(
    reader: str, images: Path, arguments: argparse.Namespace
) -> tuple[float, TakesImages]:
    """Return how many images a second a reader makes all views of, and who took them.

    The first batches do not count.
    """
    data = run_data(reader, images, arguments)
    model = TakesImages(arguments.batches)
    trainer = pl.Trainer(
        max_epochs=1,
        limit_train_batches=arguments.batches,
        accelerator="gpu" if arguments.device == "gpu" else "cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
    )
    trainer.fit(model, datamodule=data)
    model.progress.close()
    # The first batches wait for workers that start, the last ones find theirs already made.
    first, last = len(model.times) // 4, len(model.times) - 1
    seconds = model.times[last] - model.times[first]
    return (last - first) * arguments.batch / seconds, model


def main() -> None:
    """Measure all and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=Path, help="folder with one folder a class")
    parser.add_argument("--size", type=int, default=224, help="of the views, in pixels")
    parser.add_argument("--stored", type=int, default=400, help="size of made-up photographs")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--batches", type=int, default=24, help="in a turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help="of DALI and views")
    arguments = parser.parse_args()
    if importlib.util.find_spec("nvidia") is None:
        sys.exit('Error: DALI is not installed: run `pip install ".[dali]"` in this repository.')
    if arguments.images is not None and not arguments.images.is_dir():
        sys.exit(f"Error: --images={arguments.images} is not an existing folder.")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    with tempfile.TemporaryDirectory() as scratch:
        needed = arguments.batch * arguments.batches
        images = arguments.images or made_up_photographs(Path(scratch), needed, arguments.stored)
        best = dict.fromkeys(("image_folder", "dali", "tensors"), 0.0)
        for _ in range(arguments.turns):
            for reader in best:
                rate, _ = take_batches(reader, images.absolute(), arguments)
                best[reader] = max(best[reader], rate)
    source = arguments.images or f"JPEG files of {arguments.stored} pixels"
    print(
        f"{source}; two views of {arguments.size} pixels, batches of {arguments.batch}, "
        f"{arguments.workers} workers or threads, solo-learn: {form()} version"
    )
    for reader, rate in best.items():
        print(f"  {reader:>12}: {rate:8.0f} images/s, {rate / best['image_folder']:.2f}x PIL")


if __name__ == "__main__":
    main()
