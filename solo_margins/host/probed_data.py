"""The images that a backbone is probed on: those of its pretraining unless others are chosen."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf

from solo_margins.checkpoint_settings import args_file, check_exists, read_settings
from solo_margins.data.digits import digits_folder
from solo_margins.host.named_data import OURS, data_setting

HOW = ("name", "dataset", "format", "download", "unlabelled_folder", "num_workers")
"""Settings of ``data`` that say which images there are and how they are read."""

WHERE = ("train_path", "val_path")


def take_data_of_pretraining(cfg: DictConfig) -> None:
    """Complete a linear configuration by what its checkpoint was pretrained on.

    Neither ``data.name`` nor ``data.dataset`` means the images of the pretraining, and a name of
    theirs without a path their folders; ``data.train_path`` alone says that they are elsewhere now.
    A second call changes nothing.

    Args:
        cfg: a linear configuration, changed in place.

    Raises:
        ValueError: there is no such checkpoint, or it does not say what it was pretrained on; the
            message is one sentence.
    """
    name, dataset = data_setting(cfg, "name"), data_setting(cfg, "dataset")
    is_chosen = name is not None or dataset is not None
    has_path = data_setting(cfg, "train_path") is not None
    checkpoint = OmegaConf.select(cfg, "pretrained_feature_extractor", default=None)
    if checkpoint is None or (is_chosen and has_path):
        return
    check_exists(checkpoint)
    trained = read_settings(checkpoint) or OmegaConf.create({})
    known: dict[str, Any] = {key: data_setting(trained, key) for key in (*HOW, *WHERE)}
    if is_chosen and known["name" if name else "dataset"] != (name or dataset):
        return
    if known["dataset"] is None:
        if is_chosen:
            return
        raise ValueError(
            f"{args_file(checkpoint)} does not say what {checkpoint} was pretrained on: name the "
            "data to probe it on, data=<name> data.train_path=<folder>."
        )
    if known["name"] == "digits":
        # They may have been kept elsewhere.
        known |= {"train_path": digits_folder("train"), "val_path": digits_folder("val")}
    elif known["name"] not in OURS:
        known["name"] = None
    takes_dali = data_setting(cfg, "format") is None and known["format"] == "dali"
    if takes_dali and OmegaConf.select(trained, "dali.device") == "cpu":
        OmegaConf.update(cfg, "dali.device", "cpu", force_add=True)
    for key in HOW if has_path else (*HOW, *WHERE):
        if data_setting(cfg, key) is None and known[key] is not None:
            OmegaConf.update(cfg, f"data.{key}", known[key], force_add=True)
