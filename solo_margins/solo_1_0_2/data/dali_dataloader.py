"""Augmentations of views by NVIDIA DALI."""

from typing import Any

from omegaconf import DictConfig
from solo.utils.dali_dataloader import CustomTransform

from solo_margins.solo_1_0_2.data.pretrain_dataloader import arguments_of_view


def build_transform_pipeline_dali(dataset: str, cfg: DictConfig, dali_device: str) -> Any:
    """Return the augmentations of one view as DALI operators.

    Args:
        dataset: name of the data set, which decides on mean and standard deviation.
        cfg: as for the PIL transforms; equalisation and ``rrc.enabled=False`` are not offered.
        dali_device: ``"gpu"`` or ``"cpu"``.
    """
    if cfg.equalization.prob or not cfg.rrc.enabled:
        setting = "equalization" if cfg.equalization.prob else "rrc.enabled=False"
        raise NotImplementedError(
            f"The augmentation {setting} is not offered by DALI on solo-learn 1.0.2 from the "
            "package registry; use data.format=image_folder."
        )
    return CustomTransform(device=dali_device, **arguments_of_view(dataset, cfg))
