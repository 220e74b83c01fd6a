"""Augmentations of views by PIL."""

from typing import Any

from omegaconf import DictConfig
from PIL import ImageOps
from solo.utils import pretrain_dataloader
from solo.utils.pretrain_dataloader import FullTransformPipeline, NCropAugmentation
from torchvision import transforms

from solo_margins.data.image_statistics import statistics_of

__all__ = [
    "FullTransformPipeline",
    "NCropAugmentation",
    "arguments_of_view",
    "build_transform_pipeline",
]


def arguments_of_view(dataset: str, cfg: DictConfig) -> dict[str, Any]:
    """Return the arguments of the release's augmentations of one view."""
    mean, std = statistics_of(dataset, cfg)
    # Where an augmentation is switched off its settings may be absent.
    return {
        "brightness": cfg.color_jitter.get("brightness", 0),
        "contrast": cfg.color_jitter.get("contrast", 0),
        "saturation": cfg.color_jitter.get("saturation", 0),
        "hue": cfg.color_jitter.get("hue", 0),
        "color_jitter_prob": cfg.color_jitter.prob,
        "gray_scale_prob": cfg.grayscale.prob,
        "horizontal_flip_prob": cfg.horizontal_flip.prob,
        "gaussian_prob": cfg.gaussian_blur.prob,
        "solarization_prob": cfg.solarization.prob,
        "min_scale": cfg.rrc.get("crop_min_scale", 0.08),
        "max_scale": cfg.rrc.get("crop_max_scale", 1.0),
        "crop_size": cfg.crop_size,
        "mean": mean,
        "std": std,
    }


def build_transform_pipeline(dataset: str, cfg: DictConfig) -> Any:
    """Return the augmentations of one view.

    Args:
        dataset: name of the data set, which decides on mean and standard deviation; other data
            takes them from ``cfg.mean`` and ``cfg.std``.
        cfg: ``crop_size``, ``rrc``, ``color_jitter``, ``grayscale``, ``gaussian_blur``,
            ``solarization``, ``equalization`` and ``horizontal_flip``.
    """
    view = pretrain_dataloader.CustomTransform(**arguments_of_view(dataset, cfg))
    crop, *steps, flip, to_tensor, normalise = view.transform.transforms
    if not cfg.rrc.enabled:
        bicubic = transforms.InterpolationMode.BICUBIC
        crop = transforms.Resize(cfg.crop_size, interpolation=bicubic)
    equalise = transforms.RandomApply([ImageOps.equalize], p=cfg.equalization.prob)
    # A step that is never taken draws no random number, as in the repository.
    chosen = [step for step in (*steps, equalise, flip) if step.p > 0]
    return transforms.Compose([crop, *chosen, to_tensor, normalise])
