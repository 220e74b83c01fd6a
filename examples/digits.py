"""Two views of scikit-learn's digits by lightly's transform, for the examples beside this file."""

import numpy as np
from lightly.transforms import SimCLRTransform
from PIL import Image
from sklearn.datasets import load_digits
from torch import Tensor
from torch.utils.data import DataLoader


def views(number: int, batch_size: int = 128) -> DataLoader[list[Tensor]]:
    """Return batches of two views of the first digits."""
    transform = SimCLRTransform(input_size=32, gaussian_blur=0.0)
    pictures = (load_digits().images[:number] * 15).astype(np.uint8)
    images = [transform(Image.fromarray(one).convert("RGB").resize((32, 32))) for one in pictures]
    return DataLoader(images, batch_size=batch_size, shuffle=True, drop_last=True)  # type: ignore[arg-type]
