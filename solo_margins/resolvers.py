"""What our YAML files need besides Hydra itself: resolvers, and the recipes."""

import importlib.util
import sys
from collections.abc import Iterable
from typing import Any

from omegaconf import DictConfig, OmegaConf

from solo_margins.checkpoints import checkpoint_setting
from solo_margins.data.digits import digits_folder
from solo_margins.recipes import cell_name, probe_setting, store_recipes

LAUNCHERS = {
    "joblib": ("sweep", "hydra-joblib-launcher"),
    "submitit_slurm": ("slurm", "hydra-submitit-launcher"),
    "submitit_local": ("slurm", "hydra-submitit-launcher"),
    "ray": ("ray", "hydra-ray-launcher"),
}
"""Launchers of Hydra's own packages: the extra of this package that brings them, and theirs."""


def install() -> None:
    """Make our resolvers, recipes and launchers known to Hydra; a second call is harmless.

    - ``${solo_margins.digits:<split>}``: a folder of the embedded digits
    - ``${solo_margins.from_checkpoint:<checkpoint>,<key>}``: a setting that a checkpoint was
      trained with; a third argument is what to return where it has none
    - ``${solo_margins.patch_size:<image size>}``: patches of a ViT for images of that size
    - ``${solo_margins.cell:<method>,<data>,<variant>}``: the name of a recipe
    - ``${solo_margins.probe:<data>,<setting>,<default>}``: how a linear probe is trained
    - ``${solo_margins.first:<value>,<value>}``: the first of them that is not null
    """
    OmegaConf.register_new_resolver("solo_margins.digits", digits_folder, replace=True)
    OmegaConf.register_new_resolver(
        "solo_margins.from_checkpoint", checkpoint_setting, replace=True
    )
    OmegaConf.register_new_resolver("solo_margins.patch_size", patch_size, replace=True)
    OmegaConf.register_new_resolver("solo_margins.cell", cell_name, replace=True)
    OmegaConf.register_new_resolver("solo_margins.probe", probe_setting, replace=True)
    OmegaConf.register_new_resolver(
        "solo_margins.first", lambda one, other: other if one is None else one, replace=True
    )
    store_recipes()
    _explain_missing_launchers()


def composed(name: str, overrides: Iterable[str] = ()) -> DictConfig:
    """Return one of our configurations, by the name of its file, as a command line composes it."""
    from hydra import compose, initialize_config_module

    install()
    with initialize_config_module("solo_margins.configs", version_base="1.2"):
        return compose(name, overrides=list(overrides))


def running_program() -> Any:
    """Return what Hydra knows about the program that it has started, None where it has not."""
    if "hydra" not in sys.modules:
        return None
    from hydra.core.hydra_config import HydraConfig

    return HydraConfig.get() if HydraConfig.initialized() else None


def _explain_missing_launchers() -> None:
    """Let a launcher that is not installed answer with what to install."""
    from hydra.core.config_store import ConfigStore

    for launcher, (extra, package) in LAUNCHERS.items():
        if importlib.util.find_spec(f"hydra_plugins.{package.replace('-', '_')}") is not None:
            continue
        node = {
            "_target_": "hydra_plugins.solo_margins_launchers.MissingLauncher",
            "sentence": f"The launcher {launcher} needs {package}, which is not installed: run "
            f'`pip install {package}`, or `pip install ".[{extra}]"` in solo-margins\' folder.',
        }
        store = ConfigStore.instance()
        store.store(group="hydra/launcher", name=launcher, node=node, provider="solo-margins")


def patch_size(image_size: int) -> int:
    """Return the largest power of 2 that cuts an image into at least 8 patches a side.

    Example:
        >>> [patch_size(size) for size in (224, 96, 64, 32, 16)]
        [16, 8, 8, 4, 2]
    """
    return 2 ** max(0, (image_size // 8).bit_length() - 1)
