"""Validation and probing at the image size and statistics of the recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

STATISTICS = {
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "stl10": ((0.4914, 0.4823, 0.4466), (0.247, 0.243, 0.261)),
    "imagenet100": (IMAGENET_MEAN, IMAGENET_STD),
    "imagenet": (IMAGENET_MEAN, IMAGENET_STD),
}
"""Mean and standard deviation of the channels, by data set."""

NATIVE_SIZE = {
    "cifar10": 32,
    "cifar100": 32,
    "stl10": 96,
    "imagenet100": 224,
    "imagenet": 224,
    "custom": 224,
}
"""Image size of the host's own validation transform, by data set."""


@dataclass(frozen=True)
class ImageRecipe:
    """Image size and normalisation that a configuration trains with."""

    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    # What a classifier is trained on; the defaults are the convention of ImageNet.
    crop_min_scale: float = 0.08
    flip_prob: float = 0.5
    names_statistics: bool = False
    """Mean and deviation are those that a configuration of ours names."""

    def overrules(self, dataset: str) -> bool:
        """Tell whether the host's own transforms for a data set would show other images."""
        return dataset == "custom" or self.names_statistics or self.size != NATIVE_SIZE.get(dataset)


_current: ImageRecipe | None = None


def remember(cfg: DictConfig) -> None:
    """Note the image size and statistics of the configuration that is about to run.

    The host prepares its validation data from the name of the data set alone, so this is the only
    way for the recipe's size to get there.
    """
    global _current
    _current = recipe_of(cfg)


def current() -> ImageRecipe | None:
    """Return the recipe of the configuration that was parsed last, if any."""
    return _current


def recipe_of(cfg: DictConfig) -> ImageRecipe | None:
    """Read image size and statistics from a pretraining or linear configuration."""
    views: Any = OmegaConf.select(cfg, "augmentations", default=None)
    source = views[0] if views else OmegaConf.select(cfg, "data.augmentations", default=None)
    if not source or source.get("crop_size") is None:
        return None
    dataset = OmegaConf.select(cfg, "data.dataset", default="custom")
    # In other people's configurations the host ignores the statistics of data that it knows.
    is_ours = OmegaConf.select(cfg, "data.name", default=None) is not None
    names_statistics = is_ours and None not in (source.get("mean"), source.get("std"))
    mean, std = statistics_of("custom" if names_statistics else dataset, source)
    return ImageRecipe(
        int(source.crop_size),
        mean,
        std,
        float(source.get("crop_min_scale", ImageRecipe.crop_min_scale)),
        float(source.get("flip_prob", ImageRecipe.flip_prob)),
        names_statistics,
    )


def statistics_of(dataset: str, view: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the mean and standard deviation that the host normalises a view with."""
    own = (view.get("mean") or IMAGENET_MEAN, view.get("std") or IMAGENET_STD)
    mean, std = STATISTICS.get(dataset, own)
    return tuple(mean), tuple(std)


def resize_before_crop(size: int) -> int:
    """Return the length of the shorter side before the central crop.

    Large images follow the ImageNet convention, 256 for a crop of 224. Small ones are shown whole:
    there the border is part of the subject.
    """
    return round(size * 256 / 224) if size >= 96 else size


def classification_transforms(images: ImageRecipe) -> tuple[Any, Any]:
    """Return the transforms for training a classifier and for validating it."""
    from torchvision import transforms

    to_normalised = [transforms.ToTensor(), transforms.Normalize(images.mean, images.std)]
    train = transforms.Compose(
        [
            transforms.RandomResizedCrop(images.size, scale=(images.crop_min_scale, 1.0)),
            transforms.RandomHorizontalFlip(images.flip_prob),
            *to_normalised,
        ]
    )
    validation = transforms.Compose(
        [
            transforms.Resize(resize_before_crop(images.size)),
            transforms.CenterCrop(images.size),
            *to_normalised,
        ]
    )
    return train, validation
