"""Every key that a configuration may have in our programs; misspelt ones are refused.

The keys are in ``known_keys.yaml``. Two things are asked where they are known best: arguments of
the trainer are those of the installed Lightning, and a margin method's class says what it reads.
"""

import inspect
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from solo_margins import host
from solo_margins.config import nearest, setting, unknown_setting
from solo_margins.host.lightning import pl
from solo_margins.methods.margin_method import SHARED_SETTINGS

_TABLES: Any = OmegaConf.to_container(
    OmegaConf.load(Path(__file__).with_name("known_keys.yaml")), resolve=True
)
OPTIMIZER_SETTINGS: dict[str, list[str]] = _TABLES["optimizers"]
METHOD_SETTINGS: dict[str, list[str]] = _TABLES["methods"]

# Arguments of the trainer that our programs choose themselves.
CHOSEN_BY_US = ("self", "logger", "callbacks", "enable_checkpointing")

# A reference to another setting, such as ${optimizer.lr} or, from its own group, ${.lr}.
REFERENCE = re.compile(r"\$\{(\.*)([\w.]+)\}")

# The settings of margin methods that solo-learn's own methods may have switched off.
OFF_FOR_SOLO_LEARN = (
    *SHARED_SETTINGS,
    "negatives",
    "symmetric",
    "proj_batch_norm",
    "proj_last_batch_norm",
    "scale_by_temperature",
    "freeze_patch_embedding",
)

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


def method_settings(method: str) -> list[str] | None:
    """Return the names that ``method_kwargs`` may have, None if that is not known.

    Example:
        >>> method_settings("simclr")
        ['proj_hidden_dim', 'proj_output_dim', 'temperature']
    """
    if method in METHOD_SETTINGS:
        return METHOD_SETTINGS[method]
    # The release answers for methods that it lacks.
    own = getattr(host.METHODS.get(method), "own_settings", None)
    return None if own is None else [*SHARED_SETTINGS, *own]


def refuse_unknown_keys(cfg: DictConfig) -> None:
    """Raise ``ValueError`` for the first key that nothing reads, with the nearest that there is.

    Keys of the user's own that another setting refers to, such as ``${my_rate}``, are read. So
    are, for all that is known here, keys that a method of somebody else's adds.

    Args:
        cfg: a configuration with its interpolations.
    """
    is_probe = "pretrained_feature_extractor" in cfg
    method = str(setting(cfg, "method", ""))
    is_foreign = not is_probe and method_settings(method) is None
    keys = known_keys(is_probe)
    content: Any = OmegaConf.to_container(cfg, resolve=False)
    referred = set(_references(content, ()))
    for path, known in _unknown(content, keys, ()):
        is_referred = any(_are_nested(path, reference) for reference in referred)
        if not is_referred and not (is_foreign and len(path) == 1):
            raise ValueError(_sentence(path, known, keys, method))
    if not is_probe:
        _refuse_unknown_method_settings(cfg, method)
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


def _sentence(path: tuple[str, ...], known: Keys, keys: Keys, method: str) -> str:
    """Return what is said of an unknown key."""
    *group, name = path
    place = ".".join(group) or "The configuration"
    alike = _elsewhere(keys, method)
    if name in [full.rpartition(".")[2] for full in alike]:
        # It is spelt correctly, but belongs into another group.
        exact = [full for full in alike if full.rpartition(".")[2] == name]
        return f"{place} has no setting {name!r}; did you mean {' or '.join(exact)}?"
    near = nearest(name, list(known))
    if near is None and group:
        return unknown_setting(place, name, list(known))
    if near is None:
        last = nearest(name, [full.rpartition(".")[2] for full in alike])
        near = next((full for full in alike if full.rpartition(".")[2] == last), None)
    if near is None:
        return f"The configuration has no setting {name!r}, and none that is spelt alike."
    return f"{place} has no setting {name!r}; did you mean {near}?"


def _elsewhere(keys: Keys, method: str) -> list[str]:
    """Return the full names of all settings inside of groups."""
    # Values of heads belong into method_kwargs.
    full = [name for name in _full_names(keys, "") if not name.startswith("heads.")]
    full += [f"method_kwargs.{setting}" for setting in method_settings(method) or ()]
    of_optimizers = dict.fromkeys(name for names in OPTIMIZER_SETTINGS.values() for name in names)
    return [*full, *(f"optimizer.kwargs.{setting}" for setting in of_optimizers)]


def _full_names(keys: Keys, place: str) -> Iterator[str]:
    for name, below in keys.items():
        if isinstance(below, Mapping):
            yield from _full_names(below, f"{place}{name}.")
        elif place:
            yield f"{place}{name}"


def _refuse_unknown_method_settings(cfg: DictConfig, method: str) -> None:
    known = method_settings(method)
    if known is None:
        return
    accepted = [*known, *OFF_FOR_SOLO_LEARN] if method in METHOD_SETTINGS else known
    for name in _names_in(cfg, "method_kwargs"):
        if name not in accepted:
            raise ValueError(unknown_setting(f"method_kwargs of method={method}", name, known))


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
