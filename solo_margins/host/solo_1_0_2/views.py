"""Augmentations of views, by PIL and by NVIDIA DALI."""

from typing import Any

from omegaconf import DictConfig
from PIL import ImageOps
from solo.utils import pretrain_dataloader
from torchvision import transforms

from solo_margins.host.image_statistics import statistics_of


def _arguments(dataset: str, cfg: DictConfig) -> dict[str, Any]:
    """Return the arguments of the release's augmentations of one view."""
    # Where an augmentation is switched off its settings may be absent.
    jitter = ("brightness", "contrast", "saturation", "hue")
    mean, std = statistics_of(dataset, cfg)
    return {
        **{name: cfg.color_jitter.get(name, 0) for name in jitter},
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
    view = pretrain_dataloader.CustomTransform(**_arguments(dataset, cfg))
    crop, *steps, flip, to_tensor, normalise = view.transform.transforms
    if not cfg.rrc.enabled:
        bicubic = transforms.InterpolationMode.BICUBIC
        crop = transforms.Resize(cfg.crop_size, interpolation=bicubic)
    equalise = transforms.RandomApply([ImageOps.equalize], p=cfg.equalization.prob)
    # A step that is never taken draws no random number, as in the repository.
    chosen = [step for step in (*steps, equalise, flip) if step.p > 0]
    return transforms.Compose([crop, *chosen, to_tensor, normalise])


def build_transform_pipeline_dali(dataset: str, cfg: DictConfig, dali_device: str) -> Any:
    """Return the augmentations of one view as DALI operators.

    Args:
        dataset: name of the data set, which decides on mean and standard deviation.
        cfg: as for the PIL transforms; equalisation and ``rrc.enabled=False`` are not offered.
        dali_device: ``"gpu"`` or ``"cpu"``.
    """
    from solo.utils.dali_dataloader import CustomTransform

    if cfg.equalization.prob or not cfg.rrc.enabled:
        setting = "equalization" if cfg.equalization.prob else "rrc.enabled=False"
        raise NotImplementedError(
            f"The augmentation {setting} is not offered by DALI on solo-learn 1.0.2 from the "
            "package registry; use data.format=image_folder."
        )
    return CustomTransform(device=dali_device, **_arguments(dataset, cfg))
