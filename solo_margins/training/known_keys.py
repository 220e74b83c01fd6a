"""Every key that a configuration may have in our programs; misspelt ones are refused.

The keys are in ``known_keys.yaml``. Two things are asked where they are known best: arguments of
the trainer are those of the installed Lightning, and a margin method's class says what it reads.
"""

import inspect
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from omegaconf import DictConfig, OmegaConf

from solo_margins.config import nearest, setting, unknown_setting
from solo_margins.learning_rates import OPTIMIZER_SETTINGS
from solo_margins.methods.base import SHARED_SETTINGS
from solo_margins.registry import method_class

_TABLES: Any = OmegaConf.to_container(
    OmegaConf.load(Path(__file__).with_name("known_keys.yaml")), resolve=True
)

# Arguments of the trainer that our programs choose themselves.
CHOSEN_BY_US = ("self", "logger", "callbacks", "enable_checkpointing")

# A reference to another setting, such as ${optimizer.lr} or, from its own group, ${.lr}.
REFERENCE = re.compile(r"\$\{(\.*)([\w.]+)\}")

Keys = Mapping[str, Any]


def known_keys(is_probe: bool) -> dict[str, Any]:
    """Return the keys of a configuration: a name to None, to ``"any"`` or to the keys below it."""
    part = _TABLES["linear" if is_probe else "pretraining"]
    keys: Any = OmegaConf.to_container(OmegaConf.merge(_TABLES["shared"], part))
    arguments = inspect.signature(pl.Trainer.__init__).parameters
    for name in arguments:
        if name not in CHOSEN_BY_US:
            keys.setdefault(name, "any")
    return keys


def method_settings(method: str) -> list[str]:
    """Return the names that ``method_kwargs`` may have for one of our methods."""
    return [*SHARED_SETTINGS, *method_class(method).own_settings]


def refuse_unknown_keys(cfg: DictConfig, is_probe: bool) -> None:
    """Raise ``ValueError`` for the first key that nothing reads, with the nearest that there is.

    Keys of the user's own that another setting refers to, such as ``${my_rate}``, are read.

    Args:
        cfg: a configuration with its interpolations; that of a pretraining is of one of our
            methods.
        is_probe: whether it is that of a linear probe.
    """
    keys = known_keys(is_probe)
    of_method = [] if is_probe else method_settings(str(setting(cfg, "method")))
    content: Any = OmegaConf.to_container(cfg, resolve=False)
    referred = set(_references(content, ()))
    for path, known in _unknown(content, keys, ()):
        if not any(_are_nested(path, reference) for reference in referred):
            raise ValueError(_sentence(path, known, keys, of_method))
    if not is_probe:
        for name in _names_in(cfg, "method_kwargs"):
            if name not in of_method:
                place = f"method_kwargs of method={cfg.method}"
                raise ValueError(unknown_setting(place, name, of_method))
    _refuse_unknown_optimizer_settings(cfg)


def _unknown(
    content: Any, known: Any, place: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Keys]]:
    """Yield the path of every unknown key that has a value, and what its group may hold."""
    if not isinstance(known, Mapping):
        return
    if not isinstance(content, (list, Mapping)):
        _require_no_value(content, known, place)
    elif isinstance(content, list):
        for index, item in enumerate(content):
            yield from _unknown(item, known, (*place, str(index)))
    else:
        for name, value in content.items():
            path = (*place, str(name))
            if name in known:
                yield from _unknown(value, known[name], path)
            elif value is not None:
                yield path, known


def _require_no_value(content: Any, known: Keys, place: tuple[str, ...]) -> None:
    """Raise ``ValueError`` where there is a value instead of a group of settings."""
    is_reference = isinstance(content, str) and "${" in content
    if content not in (None, "None", "???") and not is_reference:
        raise ValueError(f"{'.'.join(place)} must hold {', '.join(known)}, got {content!r}.")


def _references(content: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the path of every setting that an interpolation refers to."""
    if isinstance(content, Mapping):
        for name, value in content.items():
            yield from _references(value, (*path, str(name)))
    elif isinstance(content, list):
        for index, item in enumerate(content):
            yield from _references(item, (*path, str(index)))
    elif isinstance(content, str):
        for dots, reference in REFERENCE.findall(content):
            base = path[: len(path) - len(dots)] if dots else ()
            yield (*base, *reference.split("."))


def _are_nested(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Tell whether one of two paths is the other, or inside of it."""
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def _sentence(path: tuple[str, ...], known: Keys, keys: Keys, of_method: list[str]) -> str:
    """Return what is said of an unknown key."""
    *group, name = path
    place = ".".join(group) or "The configuration"
    alike = _elsewhere(keys, of_method)
    if name in [full.rpartition(".")[2] for full in alike]:
        # It is spelt correctly, but belongs into another group.
        exact = [full for full in alike if full.rpartition(".")[2] == name]
        return f"{place} has no setting {name!r}; did you mean {' or '.join(exact)}?"
    if group:
        return unknown_setting(place, name, list(known))
    near = nearest(name, list(known))
    if near is None:
        last = nearest(name, [full.rpartition(".")[2] for full in alike])
        near = next((full for full in alike if full.rpartition(".")[2] == last), None)
    if near is None:
        return f"The configuration has no setting {name!r}, and none that is spelt alike."
    return f"{place} has no setting {name!r}; did you mean {near}?"


def _elsewhere(keys: Keys, of_method: list[str]) -> list[str]:
    """Return the full names of all settings inside of groups."""
    # Values of these belong into method_kwargs, momentum and optimizer.
    indirect = ("heads.", "teacher.", "base_optimizer.")
    full = [name for name in _full_names(keys, "") if not name.startswith(indirect)]
    full += [f"method_kwargs.{setting}" for setting in of_method]
    of_optimizers = dict.fromkeys(name for names in OPTIMIZER_SETTINGS.values() for name in names)
    return [*full, *(f"optimizer.kwargs.{setting}" for setting in of_optimizers)]


def _full_names(keys: Keys, place: str) -> Iterator[str]:
    for name, below in keys.items():
        if isinstance(below, Mapping):
            yield from _full_names(below, f"{place}{name}.")
        elif place:
            yield f"{place}{name}"


def _refuse_unknown_optimizer_settings(cfg: DictConfig) -> None:
    known = OPTIMIZER_SETTINGS.get(setting(cfg, "optimizer.name"))
    if known is None:
        return
    for name in _names_in(cfg, "optimizer.kwargs"):
        # Those of other optimizers are left out later, so that another optimizer can be chosen.
        if not any(name in names for names in OPTIMIZER_SETTINGS.values()):
            raise ValueError(unknown_setting("optimizer.kwargs", name, known))


def _names_in(cfg: DictConfig, key: str) -> Collection[str]:
    group = OmegaConf.select(cfg, key, default=None)
    return [str(name) for name in group] if isinstance(group, DictConfig) else []
