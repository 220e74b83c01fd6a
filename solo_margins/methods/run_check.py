"""The variant that a run of a margin method is recorded under, and a check of its margins."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

import lightning.pytorch as pl
import torch
from hydra.errors import CompactHydraException
from omegaconf import DictConfig, OmegaConf

from solo_margins.cli import TrainingStopped
from solo_margins.config import setting
from solo_margins.losses.capture import Captured, capture
from solo_margins.losses.margins import FIELDS, Margins
from solo_margins.methods.settings import (
    MethodSettingError,
    Negatives,
    Polarization,
    setting_errors,
    take_short_margins,
)
from solo_margins.ranks import is_rank_zero
from solo_margins.recipes import PAPER, RECIPES, Values, Variants, is_from_paper
from solo_margins.same_run import defining_settings

CUSTOM = "custom"  # the variant of settings that no recipe has
# Settings in ``method_kwargs`` in which variants differ.
GROUPS = ("margins", "schedules", "polarization", "negatives")
DEFAULTS = {
    "margins": asdict(Margins()),
    "polarization": asdict(Polarization()),
    "negatives": asdict(Negatives()),
}
VARIANTS = {name for of_data in RECIPES.values() for cells in of_data.values() for name in cells}


def settle_variant(cfg: DictConfig) -> None:
    """Set ``cfg.variant`` to ``custom`` if the settings differ from those of its recipe.

    A ``cfg.name`` that holds the variant changes with it. A second call changes nothing.

    Args:
        cfg: a pretraining configuration, changed in place.

    Raises:
        ValueError: settings of a method or a variant would have no effect.
    """
    take_short_margins(cfg)
    for group in ("schedules", "polarization", "negatives"):
        content = setting(cfg, group)
        if content is not None:
            names = list(content) if isinstance(content, DictConfig) else []
            key = f"{group}.{names[0]}" if names else group
            raise ValueError(f"{key} has no effect: use method_kwargs.{key} instead.")
    variant = setting(cfg, "variant")
    if variant not in VARIANTS:
        return
    kwargs: Any = OmegaConf.to_container(cfg.method_kwargs, resolve=True)
    data, recipes = _recipes_of(cfg)
    # Our configurations have every field of the margins, others only those that they set.
    margins = kwargs.get("margins")
    is_ours = isinstance(margins, dict) and margins.keys() >= set(FIELDS)
    if variant != "baseline" and not (is_ours and variant in recipes):
        cell = RECIPES.get(cfg.method, {}).get("cifar10", {}).get(variant, {})
        keys = [f"method_kwargs.{group}.{name}" for group in GROUPS for name in cell.get(group, ())]
        raise ValueError(
            f"variant={variant} is an option of --config-name {cfg.method}.yaml and has no effect "
            f"in this configuration: set {', '.join(keys) or 'method_kwargs.margins.*'} instead."
        )
    recipe = recipes.get(variant, {})
    if _chosen(kwargs, recipe) != _chosen(recipe, recipe):
        if setting(cfg, "name") == f"{cfg.method}-{data}-{variant}":
            cfg.name = f"{cfg.method}-{data}-{CUSTOM}"
        cfg.variant = CUSTOM


def announce_variant(cfg: DictConfig) -> None:
    """Print which values a variant has set, whose they are, and what to compare the run with."""
    variant = setting(cfg, "variant")
    data, recipes = _recipes_of(cfg)
    if variant == "baseline" or variant not in recipes or not is_rank_zero():
        return
    values = ", ".join(_described(recipes[variant], ""))
    whose = PAPER if is_from_paper(cfg.method, data, variant) else "values of ours"
    baseline = "variant=baseline"
    if "optimizer" in recipes[variant]:
        baseline += f" optimizer={recipes[variant]['optimizer']['name']}"
    if "temperature" in recipes[variant]:
        baseline += f" method_kwargs.temperature={recipes[variant]['temperature']}"
    print(
        f"variant={variant} sets {values} ({whose}). Run the comparison first: {baseline}.",
        flush=True,
    )


def _described(values: Values, place: str) -> Iterator[str]:
    """Yield the settings of a recipe as on a command line."""
    for name, value in values.items():
        if name == "optimizer":
            yield f"optimizer={value['name']}"
        elif isinstance(value, dict):
            yield from _described(value, f"{place}{name}.")
        else:
            yield f"{place}{name}={value}"


def _recipes_of(cfg: DictConfig) -> tuple[Any, Variants]:
    """Return the name of the data, and its recipes by variant."""
    data = setting(cfg, "data.name")
    return data, RECIPES.get(cfg.method, {}).get(data, {})


def _chosen(kwargs: Values, recipe: Values) -> Values:
    """Return what ``method_kwargs``, or a recipe, chooses of what variants differ in."""
    chosen: Values = {"schedules": kwargs.get("schedules")}
    for group, defaults in DEFAULTS.items():
        chosen[group] = {**defaults, **(kwargs.get(group) or {})}
    # Recipes for data set a temperature too; it counts where the variant sets it.
    if "temperature" in recipe:
        chosen["temperature"] = kwargs.get("temperature")
    # Equal values in one spelling.
    return defining_settings(chosen)


class MarginLossNotCalledError(TrainingStopped, CompactHydraException):
    """No rank called a loss with margins in the first step."""


class MarginRunCheck(pl.Callback):
    """Sets the variant of the run, and stops a run in which margins would have no effect.

    A subclass or a fork of solo-learn may compute its loss differently than the method expects. It
    would then train without margins but record them as used.
    """

    def __init__(self) -> None:
        self.is_checked = False
        self._first_step = ExitStack()
        self._captured: list[Captured] = []

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Set the variant in the configuration before it is recorded.

        Raises:
            MethodSettingError: settings of a method or a variant would have no effect.
        """
        with setting_errors():
            settle_variant(pl_module.cfg)
        announce_variant(pl_module.cfg)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, index: int) -> None:
        """Capture what the losses of the first batch compare."""
        if self.is_checked:
            return
        self._first_step.close()
        self._captured = self._first_step.enter_context(capture())
        # A loss inside torch.compile cannot be captured, so this step runs without it.
        if hasattr(torch.compiler, "set_stance"):  # since torch 2.6
            self._first_step.enter_context(torch.compiler.set_stance("force_eager"))

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        """Check the first batch.

        Raises:
            MarginLossNotCalledError: no loss with margins was called.
        """
        if self.is_checked:
            return
        self._first_step.close()
        if not self._captured:
            raise MarginLossNotCalledError(
                f"method={pl_module.cfg.method}: the first training step did not call a loss with "
                "margins, so method_kwargs.margins would have no effect: check the training_step "
                f"of {type(pl_module).__module__}.{type(pl_module).__qualname__}."
            )
        self._captured = []
        self.is_checked = True

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End the first step, which has failed."""
        self._first_step.close()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """End the first step, if there was none."""
        self._first_step.close()

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Fail if there was no step; solo-learn's program would exit with code 0.

        Raises:
            MethodSettingError: the batch is larger than the training data, so that none was
                complete.
        """
        if trainer.num_training_batches == 0 and trainer.limit_train_batches != 0:
            cfg = pl_module.cfg
            processes = f" times {trainer.world_size} processes" if trainer.world_size > 1 else ""
            raise MethodSettingError(
                f"Nothing was trained: optimizer.batch_size={cfg.optimizer.batch_size}{processes} "
                f"exceeds the number of training images of data.train_path={cfg.data.train_path}."
            )
