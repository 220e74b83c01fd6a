"""The variant that a run of a margin method is recorded under: that of what it trains."""

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from solo_margins import host
from solo_margins.config import read
from solo_margins.losses import Margins
from solo_margins.losses.margins import FIELDS
from solo_margins.methods.settings import Negatives, Polarization
from solo_margins.recipes import RECIPES, are_data_of_papers
from solo_margins.resolvers import running_program

CUSTOM = "custom"
"""The variant of settings that no recipe has."""

GROUPS = ("margins", "schedules", "polarization", "negatives")
"""Settings in ``method_kwargs`` that make variants."""

VARIANTS = {name for by_data in RECIPES.values() for cells in by_data.values() for name in cells}


def settle_variant(cfg: DictConfig) -> None:
    """Let a configuration of a margin method name the variant that it trains.

    Settings that differ from those of the chosen recipe are recorded as ``custom``, in
    ``cfg.variant`` and in a ``cfg.name`` that holds the variant. A second call changes nothing.

    Args:
        cfg: a pretraining configuration, changed in place.

    Raises:
        ValueError: settings stand where nothing reads them; the message is one sentence.
    """
    _refuse_groups_outside_of_method_kwargs(cfg)
    variant = cfg.get("variant")
    if not isinstance(variant, str) or variant not in VARIANTS:
        return
    kwargs: Any = OmegaConf.to_container(cfg.method_kwargs, resolve=True)
    data, cells = _cells(cfg)
    margins = kwargs.get("margins")
    # A configuration of ours has every field, one of somebody's own those that it sets.
    is_composed = isinstance(margins, Mapping) and margins.keys() >= set(FIELDS)
    if variant != "baseline" and not (is_composed and variant in cells):
        raise ValueError(_without_recipe(cfg.method, variant))
    cell = cells.get(variant, {})
    if _trained(kwargs, cell) != _trained(cell, cell):
        is_named_after_it = cfg.get("name") == f"{cfg.method}-{data}-{variant}"
        cfg.variant = CUSTOM
        if is_named_after_it:
            cfg.name = f"{cfg.method}-{data}-{CUSTOM}"


def announce_default(cfg: DictConfig) -> None:
    """Say which variant a program trains where neither its user nor a paper has chosen one."""
    program = running_program()
    is_chosen = program is None or program.runtime.choices.get("variant", "") is not None
    data, cells = _cells(cfg)
    if is_chosen or are_data_of_papers(data) or cfg.get("variant") not in cells:
        return
    if host.pl.utilities.rank_zero_only.rank == 0:
        others = ", ".join(name for name in cells if name != cfg.variant)
        print(
            f"variant={cfg.variant}: no paper has margins for data={data}, these are CIFAR-10's; "
            f"to choose otherwise add variant=<one of {others}>.",
            flush=True,
        )


def _cells(cfg: DictConfig) -> tuple[Any, dict[str, Any]]:
    """Return the name of the data, and the recipes that there are for it by variant."""
    data = OmegaConf.select(cfg, "data.name", default=None)
    return data, RECIPES.get(cfg.method, {}).get(data, {})


def _refuse_groups_outside_of_method_kwargs(cfg: DictConfig) -> None:
    for group in GROUPS:
        given = OmegaConf.select(cfg, group, default=None)
        if given is None:
            continue
        names = list(given) if isinstance(given, DictConfig) else []
        key = f"{group}.{names[0]}" if names else group
        raise ValueError(f"{key} has no effect where it stands: write method_kwargs.{key} instead.")


def _without_recipe(method: str, variant: str) -> str:
    cell = RECIPES.get(method, {}).get("cifar10", {}).get(variant, {})
    keys = [
        f"method_kwargs.{group}.{name}" for group in GROUPS for name in cell.get(group, {})
    ] or ["method_kwargs.margins.*"]
    return (
        f"variant={variant} is a choice of --config-name {method}.yaml and has no effect in this "
        f"configuration: set {', '.join(keys)} instead."
    )


def _trained(kwargs: Mapping[str, Any], cell: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what settings in ``method_kwargs`` do, so that equal training is equal here."""
    cfg = OmegaConf.create(dict(kwargs))
    margins = read(cfg, "margins", Margins)
    polarization = read(cfg, "polarization", Polarization)
    negatives = read(cfg, "negatives", Negatives)
    schedules = {
        (field, key): value
        for field, ramp in (kwargs.get("schedules") or {}).items()
        for key, value in (ramp if isinstance(ramp, Mapping) else {"": ramp}).items()
        if value is not None
    }
    return (
        None if margins.is_off and not schedules else margins,
        None if polarization.weight == 0 else polarization,
        None if negatives.kind == "standard" else negatives,
        schedules,
        # A recipe for data has a temperature too: it counts where the variant sets it.
        kwargs.get("temperature") if "temperature" in cell else None,
    )
