"""Resolvers that our YAML files call, and our configurations as a command line composes them."""

import inspect
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

from omegaconf import DictConfig, OmegaConf

from solo_margins.checkpoints import checkpoint_setting
from solo_margins.config import device_numbers
from solo_margins.files import digits_folder
from solo_margins.recipes import few_labels_setting, probe_setting, recipe_value


def install() -> None:
    """Make our resolvers known to OmegaConf; a second call is harmless.

    - ``${solo_margins.digits:<split>}``: a folder of the embedded digits
    - ``${solo_margins.from_checkpoint:<checkpoint>,<key>}``: a setting that a checkpoint was
      trained with; a third argument is what to return where it has none
    - ``${solo_margins.patch_size:<image size>}``: patches of a ViT for images of that size
    - ``${solo_margins.recipe:<method>,<data>,<variant>,<key>,<default>}``: a value of a recipe
    - ``${solo_margins.probe:<data>,<setting>,<default>}``: how a linear probe is trained
    - ``${solo_margins.few_labels:<percent>,<setting>}``: how a network is fine-tuned on few labels
    - ``${solo_margins.small_images_format:}``: how images of a small data set are read here
    - ``${solo_margins.data_workers:<devices>}``: how many processes load images for each device
    - ``${solo_margins.first:<value>,<value>}``: the first of them that is not null
    """
    resolvers: dict[str, Callable[..., Any]] = {
        "digits": digits_folder,
        "from_checkpoint": checkpoint_setting,
        "patch_size": patch_size,
        "recipe": recipe_value,
        "probe": probe_setting,
        "few_labels": few_labels_setting,
        "small_images_format": small_images_format,
        "data_workers": data_workers,
        "first": first,
    }
    for name, resolver in resolvers.items():
        _register(f"solo_margins.{name}", resolver)


def _register(name: str, resolver: Callable[..., Any]) -> None:
    """Make one resolver known, by the name that the installed OmegaConf has for this."""
    # OmegaConf 2.4 warns of register_new_resolver; in 2.3 register_resolver is an older function.
    newest: Any = OmegaConf.register_resolver
    if "replace" in inspect.signature(newest).parameters:
        newest(name, resolver, replace=True)
    else:
        OmegaConf.register_new_resolver(name, resolver, replace=True)


def composed(name: str, overrides: Iterable[str] = ()) -> DictConfig:
    """Return one of our configurations, by the name of its file, as a command line composes it."""
    from hydra import compose, initialize_config_module

    install()
    with initialize_config_module("solo_margins.configs", version_base=None):
        return compose(name, overrides=list(overrides))


def running_program() -> Any:
    """Return what Hydra knows about the program that it has started, None where it has not."""
    if "hydra" not in sys.modules:
        return None
    from hydra.core.hydra_config import HydraConfig

    return HydraConfig.get() if HydraConfig.initialized() else None


def first(one: Any, other: Any) -> Any:
    """Return the first of two values that is not null."""
    return other if one is None else one


def small_images_format() -> str:
    """Return ``"tensors"`` where there is a GPU, which waits for PIL nearly all of the time."""
    import torch

    return "tensors" if torch.cuda.is_available() else "image_folder"


def data_workers(devices: Any) -> int:
    """Return how many processes load images for each device: its share of the cores, at most 4.

    Args:
        devices: as in a configuration: a number, a list of numbers, or ``"auto"``.
    """
    # Of the cores of a machine a job may have some only.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(4, (cores or 1) // len(device_numbers(devices))))


def patch_size(image_size: int) -> int:
    """Return the largest power of 2 that cuts an image into at least 8 patches a side.

    Examples:
        >>> [patch_size(size) for size in (224, 96, 64, 32, 16)]
        [16, 8, 8, 4, 2]
    """
    return 2 ** max(0, (image_size // 8).bit_length() - 1)
