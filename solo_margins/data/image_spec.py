"""Size, normalisation and crops of the images that a configuration trains and validates with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig

from solo_margins.config import setting, write
from solo_margins.data import image_statistics


@dataclass(frozen=True)
class ImageSpec:
    """Image size and normalisation of a configuration, and the crops that a classifier sees."""

    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    # The defaults for training a classifier are the convention of ImageNet.
    crop_min_scale: float = 0.08
    flip_prob: float = 0.5
    # One of our configurations names mean and standard deviation itself.
    names_statistics: bool = False
    # Validation resizes to size without cutting off a border.
    validates_whole_image: bool = False

    def transforms(self) -> tuple[Any, Any]:
        """Return the transforms for training a classifier (crops) and validating it (centre)."""
        from torchvision import transforms

        shorter = self.size if self.validates_whole_image else resize_before_crop(self.size)
        normalised = [transforms.ToTensor(), transforms.Normalize(self.mean, self.std)]
        crops = [
            transforms.RandomResizedCrop(self.size, scale=(self.crop_min_scale, 1.0)),
            transforms.RandomHorizontalFlip(self.flip_prob),
        ]
        centre = [transforms.Resize(shorter), transforms.CenterCrop(self.size)]
        return transforms.Compose(crops + normalised), transforms.Compose(centre + normalised)

    def auto_augment(self) -> Any:
        """Return timm's augmentations for training a classifier."""
        from timm.data import create_transform

        return create_transform(
            input_size=self.size,
            is_training=True,
            auto_augment="rand-m9-mstd0.5-inc1",
            interpolation="bicubic",
            re_prob=0.25,
            re_mode="pixel",
            mean=self.mean,
            std=self.std,
        )


CIFAR = ImageSpec(32, image_statistics.STATISTICS["cifar10"][0], (0.247, 0.243, 0.261))
IMAGENET = ImageSpec(224, image_statistics.IMAGENET_MEAN, image_statistics.IMAGENET_STD)

# What solo-learn shows a classifier, by data set, whatever is configured.
SOLO_LEARNS_OWN = {
    "cifar10": CIFAR,
    "cifar100": CIFAR,
    "stl10": ImageSpec(96, *image_statistics.STATISTICS["stl10"], validates_whole_image=True),
    "imagenet100": IMAGENET,
    "imagenet": IMAGENET,
    "custom": IMAGENET,
}

# Image size of solo-learn's own validation, by data set.
NATIVE_SIZE = {dataset: spec.size for dataset, spec in SOLO_LEARNS_OWN.items()}


def image_spec(cfg: DictConfig) -> ImageSpec | None:
    """Return image size and statistics of a pretraining or linear configuration, None without."""
    views: Any = setting(cfg, "augmentations")
    view = views[0] if views else setting(cfg, "data.augmentations")
    if not view or view.get("crop_size") is None:
        return None
    dataset = setting(cfg, "data.dataset", "custom")
    # For a data set that solo-learn knows it ignores the statistics of other people's views.
    is_ours = setting(cfg, "data.name") is not None
    names_statistics = is_ours and None not in (view.get("mean"), view.get("std"))
    mean, std = image_statistics.statistics_of("custom" if names_statistics else dataset, view)
    return ImageSpec(
        int(view.crop_size),
        mean,
        std,
        float(view.get("crop_min_scale", ImageSpec.crop_min_scale)),
        float(view.get("flip_prob", ImageSpec.flip_prob)),
        names_statistics,
    )


def classifier_spec(cfg: DictConfig) -> ImageSpec:
    """Return how a parsed configuration shows images to a classifier and in validation.

    A data set of solo-learn's at its native size, in a configuration that is not ours, is shown as
    solo-learn shows it.
    """
    spec, own = image_spec(cfg), SOLO_LEARNS_OWN[cfg.data.dataset]
    if spec is None:
        return own
    is_configured = cfg.data.dataset == "custom" or spec.names_statistics or spec.size != own.size
    return spec if is_configured else own


def complete_image_spec(cfg: DictConfig) -> None:
    """Fill in image size and statistics of a linear configuration by its data set.

    To be called after those of the pretraining are filled in and before solo-learn parses the
    configuration, which would fill in the size and statistics of ImageNet for any data set.
    """
    dataset = cfg.data.dataset
    mean, std = image_statistics.statistics_of(dataset, {})
    defaults = {"crop_size": NATIVE_SIZE[dataset], "mean": list(mean), "std": list(std)}
    for key, value in defaults.items():
        if setting(cfg, f"data.augmentations.{key}") is None:
            write(cfg, f"data.augmentations.{key}", value)


def all_views(cfg: DictConfig, build: Callable[[str, DictConfig], Any]) -> Any:
    """Return the transform of an image into all views of a pretraining configuration.

    Args:
        cfg: a parsed pretraining configuration.
        build: solo-learn's function that makes the augmentations of one view.
    """
    spec = image_spec(cfg)
    # solo-learn ignores the mean and std of a view for data sets that it knows by name.
    dataset = "custom" if spec is not None and spec.names_statistics else cfg.data.dataset
    from solo.data.pretrain_dataloader import FullTransformPipeline, NCropAugmentation

    return FullTransformPipeline(
        [NCropAugmentation(build(dataset, view), view.num_crops) for view in cfg.augmentations]
    )


def resize_before_crop(size: int) -> int:
    """Return the length of the shorter side before the central crop.

    Large images follow the ImageNet convention, 256 for a crop of 224. Small ones are shown whole:
    there the border is part of the subject.
    """
    return round(size * 256 / 224) if size >= 96 else size
