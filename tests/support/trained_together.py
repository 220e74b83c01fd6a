"""Trains runs one after another as one of several processes, without batch normalisation.

    LOCAL_RANK=<this process> python trained_together.py <folder> <ports>...

The folder holds a configuration ``<name>.yaml`` for each port, in the order of their names.
Batch statistics are those of a process, so that nothing else is comparable with one process.
"""

import os
import sys
from pathlib import Path

from torch import nn


class ChannelNorm(nn.GroupNorm):
    """Stands where batch normalisation would, and looks at one image at a time."""

    def __init__(self, channels, affine=True, **options):
        super().__init__(1, channels, affine=affine)


REPLACED = ("BatchNorm1d", "BatchNorm2d")


def main(folder, ports):
    for name in REPLACED:
        setattr(nn, name, ChannelNorm)
    from omegaconf import OmegaConf

    from solo_margins import training

    for path, port in zip(sorted(Path(folder).glob("*.yaml")), ports, strict=True):
        os.environ["MASTER_PORT"] = port
        training.pretrain(OmegaConf.load(path))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
