"""Two views of scikit-learn's digits by lightly's transform, and the loop that trains on them.

Shared by the examples for lightly beside this file.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from lightly.transforms import SimCLRTransform
from PIL import Image
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader

from solo_margins.lens import Lens


def views(number: int, batch_size: int = 128) -> DataLoader[list[Tensor]]:
    """Return batches of two views of the first digits."""
    transform = SimCLRTransform(input_size=32, gaussian_blur=0.0)
    pictures = (load_digits().images[:number] * 15).astype(np.uint8)
    images = [transform(Image.fromarray(one).convert("RGB").resize((32, 32))) for one in pictures]
    return DataLoader(images, batch_size=batch_size, shuffle=True, drop_last=True)  # type: ignore[arg-type]


def train(model: nn.Module, loss_of: Callable[[Tensor, Tensor], Tensor], description: str) -> None:
    """Train as the command line says, and print the loss of every epoch.

    Args:
        model: whose weights are trained.
        loss_of: returns the loss of two views.
        description: of the program.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--images", type=int, default=512, help="of the 1797 digits")
    parser.add_argument(
        "--lens", default=f"outputs/{Path(sys.argv[0]).stem}", help="folder for what the lens sees"
    )
    arguments = parser.parse_args()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.06)
    lens = Lens(arguments.lens, every=2)
    for epoch in range(arguments.epochs):
        total = 0.0
        loader = views(arguments.images)
        for x0, x1 in loader:
            with lens.recording(model, epoch=epoch):
                loss = loss_of(x0, x1)
            total += loss.item()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print(f"epoch {epoch + 1}: loss {total / len(loader):.4f}", flush=True)
    lens.finish()
