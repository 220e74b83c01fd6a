"""Finding a pretraining checkpoint, and probing it as what it says it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from solo_margins import host
from solo_margins.checkpoint_settings import check_exists, read_settings
from solo_margins.host.recipe import recipe_of
from solo_margins.runner.runs import newest_checkpoint
from solo_margins.runner.settings import setting


def find_checkpoint(given: str | Path, named: str = "pretrained_feature_extractor=") -> Path:
    """Return the checkpoint that a path means: a file, or the newest one in a run's folder.

    Args:
        given: the path.
        named: how an error names it, in front of the path.
    """
    check_exists(given, named)
    path = Path(given)
    if path.is_dir():
        newest = newest_checkpoint(path)
        if newest is None:
            raise ValueError(f"{named}{given} holds no checkpoint (*.ckpt).")
        return newest
    if path.suffix not in (".ckpt", ".pth", ".pt"):
        raise ValueError(f"{named}{given} must end with .ckpt, .pth or .pt.")
    return path


def pretraining_args(checkpoint: Path) -> DictConfig:
    """Return the configuration that a checkpoint was trained with, empty if it is not known."""
    found = read_settings(checkpoint)
    return OmegaConf.create({}) if found is None else found


def fill_from_pretraining(cfg: DictConfig, args: DictConfig) -> None:
    """Complete backbone and image size of a probing configuration by its checkpoint's settings.

    What the configuration names itself stays as it is.
    """

    def fill(key: str, value: Any) -> None:
        if setting(cfg, key) is None and value is not None:
            OmegaConf.update(cfg, key, value, force_add=True)

    fill("pretrain_method", setting(args, "method"))
    if setting(cfg, "backbone.name") is None:
        fill("backbone.name", setting(args, "backbone.name"))
        fill("backbone.kwargs", setting(args, "backbone.kwargs"))
    if setting(cfg, "data.augmentations") is None:
        # A null would hide the values below it.
        OmegaConf.update(cfg, "data.augmentations", {}, force_add=True)
    images = recipe_of(args)
    if images is not None:
        fill("data.augmentations.crop_size", images.size)
        # solo-learn knows the statistics of its own data sets; a backbone wants those of its own.
        if images.names_statistics or setting(args, "data.dataset") != cfg.data.dataset:
            fill("data.augmentations.mean", list(images.mean))
            fill("data.augmentations.std", list(images.std))


def pretrained_backbone(cfg: DictConfig, checkpoint: Path, args: DictConfig) -> Any:
    """Return the configured backbone with the checkpoint's weights in it.

    solo-learn chooses the stem of a ResNet by the name of the data set: that of the pretraining
    counts, not that of the probe.
    """
    described = cfg.copy()
    trained_on = setting(args, "data.dataset")
    if trained_on is not None:
        described.data.dataset = trained_on
    backbone = host.build_backbone(described)
    host.load_backbone(backbone, checkpoint)
    return backbone
