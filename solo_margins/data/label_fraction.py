"""A stratified share of the images: probing with few labels, pretraining on part of the data."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Subset


def stratified_indices(labels: Tensor, fraction: float, seed: int) -> Tensor:
    """Return the sorted indices of a share of the images of every class, at least one of each.

    The same seed chooses the same images.

    Args:
        labels: (N,) labels of all images.
        fraction: share of the images of each class, rounded to the nearest number of images.
        seed: chooses the images.

    >>> labels = torch.tensor([0, 0, 0, 0, 1, 1, 2])
    >>> labels[stratified_indices(labels, 0.5, seed=1)]
    tensor([0, 0, 1, 2])
    """
    check_fraction(fraction)
    generator = torch.Generator().manual_seed(seed)
    kept = []
    for label in labels.unique().tolist():
        images = (labels == label).nonzero().flatten()
        number = max(1, round(fraction * len(images)))
        kept.append(images[torch.randperm(len(images), generator=generator)[:number]])
    return torch.cat(kept).sort().values


def check_fraction(fraction: Any, name: str = "data.fraction") -> None:
    """Raise ``ValueError`` unless the fraction is between 0 and 1."""
    is_number = isinstance(fraction, int | float) and not isinstance(fraction, bool)
    if not is_number or not 0 < fraction < 1:
        raise ValueError(f"{name} must be between 0 and 1, or -1 for all, got {fraction!r}.")


def keep_fraction(images: Any, fraction: float, seed: int) -> Any:
    """Return a data set with a share of the images of every class, at least one of each."""
    # torchvision's STL-10 has labels, its CIFAR and our image files have targets.
    labels = getattr(images, "targets", getattr(images, "labels", None))
    if labels is None:
        raise ValueError(
            f"data.fraction={fraction} needs labels that can be read without the images, which "
            f"{type(images).__name__} does not have: store the data as an image folder."
        )
    indices = stratified_indices(torch.as_tensor(labels), fraction, seed)
    return Subset(images, indices.tolist())
