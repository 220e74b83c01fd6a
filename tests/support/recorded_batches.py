"""Runs a program and keeps every batch that it trains on.

    python recorded_batches.py <folder> <program> <arguments>...

Knows Lightning alone, so that the program finds the plugin by itself, or does not.
"""

import itertools
import sys
from pathlib import Path

import torch
from lightning.pytorch import LightningModule


def recorder(folder):
    """Return a hook of modules that writes batches, named by run, rank, epoch and place."""
    folder.mkdir()
    runs = itertools.count()

    def on_train_batch_start(self, batch, batch_idx):
        if not hasattr(self, "number_of_run"):
            self.number_of_run = next(runs)
        name = f"{self.number_of_run}-{self.global_rank}-{self.current_epoch}-{batch_idx}.pt"
        torch.save(batch, folder / name)

    return on_train_batch_start


if __name__ == "__main__":
    _, folder, program, *arguments = sys.argv
    LightningModule.on_train_batch_start = recorder(Path(folder))
    sys.argv[:] = [program, *arguments]
    sys.path[0] = str(Path(program).parent)
    # Not by runpy, which would let processes that Lightning starts run the program itself.
    exec(compile(Path(program).read_text(), program, "exec"))
