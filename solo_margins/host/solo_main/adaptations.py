"""What our own configurations ask of solo-learn's repository form, beyond its repairs."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig
from solo.args import linear, pretrain

from solo_margins.host import (
    dali_files,
    dali_images,
    named_data,
    own_settings,
    probed_data,
    recipe,
    stored_images,
)
from solo_margins.host.backbones import LIKE_MOCOV3
from solo_margins.host.changes import Extend, Repair, Replace, Wrap
from solo_margins.host.label_fraction import keep_fraction


def find_pretraining_data(original: Any, cfg: DictConfig) -> DictConfig:
    """Find data for pretraining before solo-learn looks for it."""
    _find_data(cfg, pretrain._N_CLASSES_PER_DATASET, pretraining=True)
    return original(cfg)


def find_labelled_data(original: Any, cfg: DictConfig) -> DictConfig:
    """Find data for a classifier before solo-learn looks for it."""
    probed_data.take_data_of_pretraining(cfg)
    _find_data(cfg, linear._N_CLASSES_PER_DATASET, pretraining=False)
    return original(cfg)


def _find_data(cfg: DictConfig, numbers: dict[str, int], pretraining: bool) -> None:
    named_data.locate(cfg, pretraining)
    recipe.remember(cfg)
    numbers.pop("custom", None)
    known = named_data.current().classes_of(cfg.data.get("train_path"))
    if known is not None:
        numbers["custom"] = len(known)


def prepare_few_labels(
    original: Any, *args: Any, data_fraction: float = -1.0, **kwargs: Any
) -> Any:
    """Prepare data for a classifier, and keep the share of it that is asked for."""
    train, validation = original(*args, **kwargs)
    reading = named_data.current()
    fraction = data_fraction if data_fraction > 0 else reading.fraction
    if fraction is not None:
        train = keep_fraction(train, fraction, reading.seed)
    return train, validation


def prepare_transforms(original: Any, dataset: str) -> tuple[Any, Any]:
    """Prepare images for a classifier as the recipe says."""
    wanted = recipe.current()
    if wanted is None or not wanted.overrules(dataset):
        return original(dataset)
    return recipe.classification_transforms(wanted)


def create_transform(original: Any, input_size: int, **kwargs: Any) -> Any:
    """Augment images of the recipe's size."""
    wanted = recipe.current()
    return original(wanted.size if wanted is not None else input_size, **kwargs)


def settle_recipe(original: Any, cfg: DictConfig) -> DictConfig:
    """Take out what composed recipes leave over."""
    return own_settings.settle_recipe(original(cfg))


def show_the_recipe(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    """Let one of DALI's pipelines for a classifier show what the recipe says."""
    from nvidia.dali import ops, types

    original(self, *args, **kwargs)
    wanted = recipe.current()
    if wanted is not None:
        dali_images.follow_recipe(self, ops, types, wanted)


def get_constructor(original: Any, method: Any, options: Any, default: Any) -> Any:
    """Return MoCo v3's variant of the ViT for methods that derive from it."""
    alias = "mocov3" if str(method).lower() in LIKE_MOCOV3 else method
    return original(alias, options, default)


ADAPTATIONS = (
    Repair(
        "data_of_the_configuration",
        "solo-learn must be told how CIFAR or STL-10 is stored. It counts a folder of unlabelled "
        "images as a class. It does not hand the size of images on to validation.",
        (
            Wrap("args.pretrain", "add_and_assert_dataset_cfg", find_pretraining_data),
            Wrap("args.linear", "add_and_assert_dataset_cfg", find_labelled_data),
        ),
    ),
    Repair(
        "settings_of_recipes",
        "Settings that a data set's recipe makes for one backbone or optimizer reach another, "
        "which refuses them.",
        (
            Wrap("args.pretrain", "add_and_assert_lightning_cfg", settle_recipe),
            Wrap("args.linear", "add_and_assert_lightning_cfg", settle_recipe),
        ),
    ),
    Repair(
        "images_as_configured",
        "solo-learn downloads CIFAR and STL-10 unasked. A folder of unlabelled images is taken for "
        "a class, hidden files for images.",
        (
            *(
                Replace("data.pretrain_dataloader", name, value)
                for name, value in stored_images.FOR_PRETRAINING.items()
            ),
            *(
                Replace("data.classification_dataloader", name, value)
                for name, value in stored_images.FOR_CLASSIFICATION.items()
            ),
        ),
    ),
    Repair(
        "few_labels",
        "`main_linear.py` ignores `data.fraction`; elsewhere it fails for torchvision's files, and "
        "for a share of less than one image a class.",
        (Wrap("data.classification_dataloader", "prepare_datasets", prepare_few_labels),),
    ),
    Repair(
        "image_size_of_the_recipe",
        "`custom` data is validated and probed at 224 pixels whatever the recipe's size. So is any "
        "data with `auto_augment`, and CIFAR-100 with the statistics of CIFAR-10.",
        (
            Wrap("data.classification_dataloader", "prepare_transforms", prepare_transforms),
            Wrap("data.classification_dataloader", "create_transform", create_transform),
        ),
    ),
    Repair(
        "dali_with_recipes",
        "With DALI, probing crops to 224 pixels, flips and normalises as on ImageNet whatever is "
        "configured. Hidden files are taken for images, hidden and empty folders for classes.",
        (
            Replace("data.dali_dataloader", "os", dali_files.VisibleImages),
            Wrap("data.dali_dataloader", "NormalPipelineBuilder.__init__", show_the_recipe),
        ),
        needs="nvidia.dali",
    ),
    Repair(
        "names_of_runs",
        "A run's folder cannot be named, `run_id` is ignored.",
        (Wrap("utils.checkpointer", "Checkpointer.run_name", own_settings.run_name),),
    ),
    Repair(
        "auto_resume_with_our_settings",
        "A run resumes from one that differs in a setting that only we have.",
        (Extend("utils.auto_resumer", "AutoResumer.SHOULD_MATCH", own_settings.SHOULD_MATCH_TOO),),
    ),
    Repair(
        "vit_of_mocov3",
        "Methods derived from MoCo v3 get a plain ViT: solo-learn picks it by the method's name.",
        (Wrap("backbones.vit", "get_constructor", get_constructor),),
    ),
)
"""Applied after the repairs."""
