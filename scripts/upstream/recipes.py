"""The papers' recipes as YAML files in the shape of solo-learn's ``scripts/pretrain``."""

from __future__ import annotations

import copy
import functools
from importlib import resources
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from solo_margins import resolvers
from solo_margins.losses import Margins
from solo_margins.recipes import RECIPES, is_from_paper
from upstream.checkout import Checkout

FOLDERS = {"cifar": "cifar10", "imagenet-100": "imagenet100", "imagenet": "imagenet"}
"""Folder of solo-learn's recipes to the data of ours that belong there."""

BEST_VARIANT = ("pos_curv", "curv")
"""What the paper recommends, with and without negatives."""

AUGMENTATIONS = "margins.yaml"
"""What the papers' augmentations are called where solo-learn has none like them."""

HEAD = """defaults:
  - _self_
  - augmentations: {augmentations}
  - wandb: private.yaml
  - override hydra/hydra_logging: disabled
  - override hydra/job_logging: disabled

# disable hydra outputs
hydra:
  output_subdir: null
  run:
    dir: .

"""

# Of the run, not of the recipe: as in the recipes that a folder has.
OF_THE_FOLDER = (
    "data.train_path",
    "data.val_path",
    "data.format",
    "checkpoint",
    "auto_resume",
    "devices",
    "sync_batchnorm",
    "accelerator",
    "strategy",
    "precision",
)


def add_recipes(checkout: Checkout, method: str, parent: str) -> None:
    """Add a recipe of a method to every folder of recipes where one is known.

    That is where a paper gives values, or where its parent has a recipe.
    """
    for folder, data in FOLDERS.items():
        variant = next((v for v in BEST_VARIANT if v in RECIPES[method].get(data, {})), None)
        siblings = checkout.files(f"scripts/pretrain/{folder}/*.y*ml")
        own = [path for path in siblings if path.stem == parent]
        if variant is None or not siblings:
            continue
        if not own and not is_from_paper(method, data, variant):
            continue
        sibling: Any = OmegaConf.create(_values(checkout.read((own or siblings)[0])))
        recipe = copy.deepcopy(_composed(method, data, variant))
        augmentations = _augmentations_file(checkout, folder, recipe)
        text = HEAD.format(augmentations=augmentations)
        text += _written(method, data, recipe, sibling)
        checkout.put(f"scripts/pretrain/{folder}/{method}.yaml", text)


def _values(text: str) -> Any:
    values = yaml.safe_load(text)
    for key in ("defaults", "hydra"):
        values.pop(key, None)
    return values


@functools.cache
def _composed(method: str, data: str, variant: str) -> DictConfig:
    overrides = [f"data={data}", f"variant={variant}", "data.train_path=./datasets"]
    cfg = resolvers.composed(f"{method}.yaml", overrides)
    OmegaConf.set_struct(cfg, False)
    # Its rate is that of the protocol, which solo-learn's recipes do not have.
    OmegaConf.resolve(cfg.optimizer)
    return cfg


def _augmentations_file(checkout: Checkout, folder: str, recipe: DictConfig) -> str:
    """Return the name of the file with a recipe's augmentations, which is added if missing."""
    views: Any = OmegaConf.to_container(recipe.augmentations, resolve=True)
    for view in views:
        # solo-learn normalises by what it knows of the data set.
        view.pop("mean", None)
        view.pop("std", None)
    place = f"scripts/pretrain/{folder}/augmentations"
    for path in checkout.files(f"{place}/*.yaml"):
        if yaml.safe_load(checkout.read(path)) == views:
            return path.name
    checkout.put(f"{place}/{AUGMENTATIONS}", _yaml(views).replace("\n- ", "\n\n- "))
    return AUGMENTATIONS


def _written(method: str, data: str, recipe: DictConfig, sibling: DictConfig) -> str:
    for key in OF_THE_FOLDER:
        value = OmegaConf.select(sibling, key)
        if value is not None:
            OmegaConf.update(recipe, key, value, force_add=True)
    if recipe.data.dataset.startswith("cifar"):
        recipe.data.val_path = recipe.data.train_path
    own = own_settings(method)
    kwargs: Any = OmegaConf.to_container(recipe.method_kwargs, resolve=True)
    kwargs = {key: value for key, value in kwargs.items() if key in own["method_kwargs"]}
    content: dict[str, Any] = {
        "name": f"{method}-{data}",
        "method": method,
        "backbone": _backbone(recipe),
        "method_kwargs": {**kwargs, "margins": _changed_margins(recipe)},
        "momentum": recipe.momentum if "momentum" in own else None,
        "data": {key: recipe.data[key] for key in ("dataset", "train_path", "val_path", "format")},
        "optimizer": recipe.optimizer,
        "scheduler": recipe.scheduler,
        "checkpoint": {key: recipe.checkpoint[key] for key in ("enabled", "dir", "frequency")},
        "auto_resume": {"enabled": recipe.auto_resume.enabled},
        "max_epochs": recipe.max_epochs,
    }
    # As solo-learn's own recipes have it; ours ask the machine.
    content["data"]["num_workers"] = 4
    of_lightning = {
        key: recipe[key]
        for key in ("devices", "sync_batchnorm", "accelerator", "strategy", "precision")
    }
    content = {key: value for key, value in content.items() if value is not None}
    return (
        _yaml({key: content.pop(key) for key in list(content) if key != "max_epochs"})
        + "\n# overwrite PL stuff\n"
        + _yaml({**content, **of_lightning})
    )


class _BlockDumper(yaml.SafeDumper):
    """Writes a line for every setting, and lists of numbers in one."""


def _represent_list(dumper: yaml.SafeDumper, values: list[Any]) -> yaml.Node:
    is_short = not any(isinstance(value, dict | list) for value in values)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=is_short)


_BlockDumper.add_representer(list, _represent_list)


def _yaml(values: Any) -> str:
    plain = OmegaConf.to_container(OmegaConf.create(values), resolve=True)
    return yaml.dump(plain, Dumper=_BlockDumper, sort_keys=False, default_flow_style=False)


def _backbone(recipe: DictConfig) -> dict[str, Any]:
    """Return the backbone under solo-learn's name, which chooses the stem by the data set."""
    name = recipe.backbone.name.removeprefix("cifar_").removeprefix("pooled_")
    kwargs: Any = OmegaConf.to_container(recipe.backbone.kwargs, resolve=True)
    kwargs = {key: value for key, value in kwargs.items() if value is not None}
    return {"name": name, "kwargs": kwargs} if kwargs else {"name": name}


def own_settings(method: str) -> Any:
    """Return what the file of a method sets itself; data sets have settings for every method."""
    text = resources.files("solo_margins.configs").joinpath(f"{method}.yaml").read_text()
    return yaml.safe_load(text)


def _changed_margins(recipe: DictConfig) -> dict[str, Any]:
    off = vars(Margins())
    return {
        name: value for name, value in recipe.method_kwargs.margins.items() if value != off[name]
    }
