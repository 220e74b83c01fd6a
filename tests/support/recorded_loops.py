"""What each process does in the test of the lens in a loop over several processes."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from solo_margins.lens import Lens
from solo_margins.losses import MarginNTXentLoss


def collapsing_rank(rank, folder):
    """Return when and why this rank stops, and whether features are measured.

    Only the first rank's numbers show a collapse.
    """
    torch.manual_seed(rank)
    model = nn.Module()
    model.backbone, model.projector = nn.Linear(8, 6), nn.Linear(6, 4)
    model.forward = lambda x: model.projector(model.backbone(x))
    parallel, criterion = DistributedDataParallel(model), MarginNTXentLoss(0.3)
    lens, step, is_measured = Lens(folder, every=1, on_collapse="stop"), -1, True
    while not lens.stopped and step < 40:
        step += 1
        with lens.recording(parallel):
            z = parallel(torch.randn(16, 8)) * rank + torch.randn(16, 4)
            criterion(z, z if rank else torch.randn(16, 4)).backward()
        if rank == 0:
            is_measured &= {"rankme", "uniformity"} <= lens.last.scalars.keys()
    return step, lens.stopped, is_measured
