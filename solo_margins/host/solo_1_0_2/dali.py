"""Augmentations of views as operators of NVIDIA DALI."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig
from solo.utils.dali_dataloader import CustomTransform

from solo_margins.host.image_statistics import statistics_of


def build_transform_pipeline_dali(dataset: str, cfg: DictConfig, dali_device: str) -> Any:
    """Return the augmentations of one view as DALI operators.

    Args:
        dataset: name of the data set, which decides on mean and standard deviation.
        cfg: as for the PIL transforms; equalisation and ``rrc.enabled=False`` are not offered.
        dali_device: ``"gpu"`` or ``"cpu"``.
    """
    for setting, is_set in (
        ("equalization", cfg.equalization.prob),
        ("rrc.enabled=False", not cfg.rrc.enabled),
    ):
        if is_set:
            raise NotImplementedError(
                f"The augmentation {setting} is not offered by DALI on solo-learn 1.0.2 from the "
                "package registry; use data.format=image_folder."
            )
    mean, std = statistics_of(dataset, cfg)
    jitter = cfg.color_jitter
    return CustomTransform(
        device=dali_device,
        brightness=jitter.get("brightness", 0),
        contrast=jitter.get("contrast", 0),
        saturation=jitter.get("saturation", 0),
        hue=jitter.get("hue", 0),
        color_jitter_prob=jitter.prob,
        gray_scale_prob=cfg.grayscale.prob,
        horizontal_flip_prob=cfg.horizontal_flip.prob,
        gaussian_prob=cfg.gaussian_blur.prob,
        solarization_prob=cfg.solarization.prob,
        min_scale=cfg.rrc.crop_min_scale,
        max_scale=cfg.rrc.crop_max_scale,
        crop_size=cfg.crop_size,
        mean=list(mean),
        std=list(std),
    )
