"""Augmentations of views read with PIL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig
from PIL import Image, ImageOps
from solo.utils import pretrain_dataloader as pretraining
from torchvision import transforms

from solo_margins.host.image_statistics import statistics_of

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
    mean, std = statistics_of(dataset, cfg)
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
