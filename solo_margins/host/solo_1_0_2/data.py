"""Images read with PIL, for pretraining and for classification."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from PIL import Image, ImageOps
from solo.utils import classification_dataloader as classification
from solo.utils import pretrain_dataloader as pretraining
from torch.utils.data import DataLoader
from torchvision import transforms

from solo_margins.host import named_data, recipe, stored_images
from solo_margins.host.label_fraction import keep_fraction

vars(pretraining).update(stored_images.FOR_PRETRAINING)
vars(classification).update(stored_images.FOR_CLASSIFICATION)

BICUBIC = transforms.InterpolationMode.BICUBIC


class Equalization:
    """Equalises the histogram of an image; the release has no such augmentation."""

    def __call__(self, image: Image.Image) -> Image.Image:
        """Return the equalised image."""
        return ImageOps.equalize(image)


def build_transform_pipeline(dataset: str, cfg: DictConfig) -> Any:
    """Return the augmentations of one view.

    Args:
        dataset: name of the data set, which decides on mean and standard deviation; other data
            takes them from ``cfg.mean`` and ``cfg.std``.
        cfg: ``crop_size``, ``rrc``, ``color_jitter``, ``grayscale``, ``gaussian_blur``,
            ``solarization``, ``equalization`` and ``horizontal_flip``.
    """
    mean, std = recipe.statistics_of(dataset, cfg)
    steps: list[Any] = []
    if cfg.rrc.enabled:
        scale = (cfg.rrc.crop_min_scale, cfg.rrc.crop_max_scale)
        steps.append(transforms.RandomResizedCrop(cfg.crop_size, scale, interpolation=BICUBIC))
    else:
        steps.append(transforms.Resize(cfg.crop_size, interpolation=BICUBIC))

    def sometimes(probability: float, make: Callable[[], Any]) -> None:
        if probability:
            steps.append(transforms.RandomApply([make()], p=probability))

    jitter = cfg.color_jitter
    sometimes(
        jitter.prob,
        lambda: transforms.ColorJitter(
            jitter.brightness, jitter.contrast, jitter.saturation, jitter.hue
        ),
    )
    if cfg.grayscale.prob:
        steps.append(transforms.RandomGrayscale(cfg.grayscale.prob))
    sometimes(cfg.gaussian_blur.prob, pretraining.GaussianBlur)
    sometimes(cfg.solarization.prob, pretraining.Solarization)
    sometimes(cfg.equalization.prob, Equalization)
    if cfg.horizontal_flip.prob:
        steps.append(transforms.RandomHorizontalFlip(cfg.horizontal_flip.prob))
    normalise = transforms.Normalize(mean, std)
    return transforms.Compose([*steps, transforms.ToTensor(), normalise])


def prepare_pretrain_dataset(
    dataset: str,
    transform: Callable[..., Any],
    train_data_path: str | Path | None = None,
    data_format: str = "image_folder",
    no_labels: bool = False,
    download: bool = True,
    data_fraction: float = -1.0,
) -> Any:
    """Return the training images with their indexes, as ``(index, views, label)``."""
    _refuse_h5(data_format)
    images = pretraining.prepare_datasets(
        dataset,
        transform,
        # Joined to an absolute path, the first part of a path vanishes.
        data_dir=Path(".") if train_data_path is not None else None,
        train_dir=train_data_path,
        no_labels=no_labels,
        download=download,
    )
    if data_fraction > 0:
        _keep_fraction(images, data_fraction)
    return images


def prepare_pretrain_dataloader(
    train_dataset: Any, batch_size: int = 64, num_workers: int = 4
) -> DataLoader[Any]:
    """Return batches of shuffled training images, without an incomplete last one."""
    return pretraining.prepare_dataloader(train_dataset, batch_size, num_workers)


def prepare_classification_transforms(dataset: str) -> tuple[Any, Any]:
    """Return the transforms for training and validation at the recipe's image size."""
    if dataset not in recipe.NATIVE_SIZE:
        names = sorted(recipe.NATIVE_SIZE)
        raise ValueError(f"data.dataset must be one of {names}, got {dataset!r}.")
    wanted = recipe.current()
    if wanted is not None and wanted.overrules(dataset):
        return recipe.classification_transforms(wanted)
    native = recipe.NATIVE_SIZE[dataset]
    if native == 224:
        # The release's own have a typing error in the standard deviation.
        return recipe.classification_transforms(
            recipe.ImageRecipe(native, *recipe.statistics_of(dataset, {}))
        )
    return classification.prepare_transforms(dataset)


def prepare_classification_data(
    dataset: str,
    train_data_path: str | Path | None = None,
    val_data_path: str | Path | None = None,
    data_format: str = "image_folder",
    batch_size: int = 64,
    num_workers: int = 4,
    download: bool = True,
    data_fraction: float = -1.0,
    auto_augment: bool = False,
) -> tuple[DataLoader[Any], DataLoader[Any]]:
    """Return the loaders of labelled training and validation images."""
    _refuse_h5(data_format)
    train_transform, val_transform = prepare_classification_transforms(dataset)
    if auto_augment:
        train_transform = _auto_augment(dataset)
    given = train_data_path is not None or val_data_path is not None
    train, val = classification.prepare_datasets(
        dataset,
        train_transform,
        val_transform,
        data_dir=Path(".") if given else None,
        train_dir=train_data_path,
        val_dir=val_data_path,
        download=download,
    )
    reading = named_data.current()
    fraction = data_fraction if data_fraction > 0 else reading.fraction
    if fraction is not None:
        train = keep_fraction(train, fraction, reading.seed)
    loaders: tuple[DataLoader[Any], DataLoader[Any]] = classification.prepare_dataloaders(
        train, val, batch_size=batch_size, num_workers=num_workers
    )
    return loaders


def _auto_augment(dataset: str) -> Any:
    from timm.data import create_transform

    wanted = recipe.current()
    return create_transform(
        input_size=wanted.size if wanted is not None else recipe.NATIVE_SIZE[dataset],
        is_training=True,
        auto_augment="rand-m9-mstd0.5-inc1",
        interpolation="bicubic",
        re_prob=0.25,
        mean=recipe.IMAGENET_MEAN,
        std=recipe.IMAGENET_STD,
    )


def _refuse_h5(data_format: str) -> None:
    if data_format == "h5":
        raise NotImplementedError(
            "data.format=h5 is not in solo-learn 1.0.2 from the package registry; "
            "solo-learn's repository (1.0.6 or later) has it."
        )


def _keep_fraction(images: Any, fraction: float) -> None:
    """Keep a fixed, stratified share of a data set's images."""
    if fraction >= 1:
        raise ValueError(f"data.fraction must be below 1, or negative for all, got {fraction}.")
    from sklearn.model_selection import train_test_split

    name = "images" if hasattr(images, "images") else "samples"
    items = getattr(images, name, None)
    if items is None:
        raise ValueError("data.fraction needs an image folder as data.train_path.")
    labels = [label for _, label in items] if name == "samples" else None
    kept, _ = train_test_split(items, train_size=fraction, stratify=labels, random_state=42)
    setattr(images, name, kept)
