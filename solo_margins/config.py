"""Settings of a configuration as frozen dataclasses: one reader for all of them."""

import difflib
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from omegaconf import ListConfig, OmegaConf

# YAML writes infinity as .inf; on Hydra's command line that stays a word.
INFINITY_WORDS = (".inf", "inf", "infinity")

Settings = TypeVar("Settings")


def setting(cfg: Any, key: str, default: Any = None) -> Any:
    """Return a setting, or the default where it is absent, null or left at ``???``."""
    value = OmegaConf.select(cfg, key, default=None)
    return default if value is None or value in ("None", "???") else value


def require(cfg: Any, *keys: str) -> None:
    """Raise ``ValueError`` naming every setting that has no value."""
    absent = [key for key in keys if setting(cfg, key) is None]
    if absent:
        raise ValueError(f"The configuration needs a value for {', '.join(absent)}.")


def read(cfg: Any, place: str, kind: type[Settings]) -> Settings:
    """Return the settings at a place of a configuration as a dataclass.

    Absent settings have the dataclass's defaults; its ``__post_init__`` checks the others and
    raises ``ValueError`` with a sentence that begins with the field's name.

    Args:
        cfg: the configuration.
        place: such as ``"method_kwargs.margins"``.
        kind: the dataclass.

    Raises:
        ValueError: a setting is unknown or leaves its range; the message names it.

    Examples:
        >>> from solo_margins.losses import Margins
        >>> cfg = OmegaConf.create({"margins": {"positive_scale": 20, "curvature": ".inf"}})
        >>> read(cfg, "margins", Margins).curvature
        inf
        >>> read(OmegaConf.create({"lens": {"evry": 3}}), "lens", Margins)
        Traceback (most recent call last):
        ...
        ValueError: lens has no setting 'evry'; its settings are angular, subtractive, \
positive_scale, curvature, attenuation, attenuation_type, curve, beyond_pi, scaling
    """
    return built(place, plain(cfg, place), kind)


def plain(cfg: Any, place: str) -> Any:
    """Return what a configuration has at a place, groups of settings as dictionaries and lists."""
    given: Any = OmegaConf.select(cfg, place, default=None)
    return OmegaConf.to_container(given, resolve=True) if OmegaConf.is_config(given) else given


def built(place: str, given: Any, kind: type[Settings]) -> Settings:
    """Return settings as a dataclass, as `read` does."""
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    values = {}
    for name, value in known_settings(place, given, known).items():
        is_infinity = isinstance(value, str) and value.lower() in INFINITY_WORDS
        values[name] = math.inf if is_infinity else value
    try:
        return kind(**values)
    except ValueError as reason:
        raise ValueError(f"{place}.{reason}") from None


def known_settings(place: str, given: Any, names: Collection[str]) -> Mapping[str, Any]:
    """Return settings, none for None, or raise ``ValueError`` unless all have known names.

    Args:
        place: how an error names the group.
        given: what the configuration has there.
        names: the settings of the group.
    """
    if given is not None and not isinstance(given, Mapping):
        raise ValueError(f"{place} must hold {', '.join(names)}, got {given!r}")
    for name in given or ():
        if name not in names:
            raise ValueError(unknown_setting(place, name, names))
    return given or {}


def unknown_setting(place: str, name: Any, names: Collection[str]) -> str:
    """Return the sentence that refuses a name, with the nearest name that there is.

    Examples:
        >>> unknown_setting("optimizer", "lrr", ["name", "lr"])
        "optimizer has no setting 'lrr'; did you mean lr? Its settings are name, lr"
        >>> unknown_setting("optimizer", "colour", ["name", "lr"])
        "optimizer has no setting 'colour'; its settings are name, lr"
    """
    listed = ", ".join(names)
    near = nearest(name, names)
    if near is None:
        return f"{place} has no setting {name!r}; its settings are {listed}"
    return f"{place} has no setting {name!r}; did you mean {near}? Its settings are {listed}"


def nearest(name: Any, names: Collection[str]) -> str | None:
    """Return the name that is spelt most alike, None if none is."""
    found = difflib.get_close_matches(str(name), list(names), n=1)
    return found[0] if found else None


def write(cfg: Any, place: str, value: Any) -> None:
    """Write a setting, or a mapping of settings, into a configuration."""
    OmegaConf.update(cfg, place, value, force_add=True, merge=False)


def device_numbers(devices: Any, on_cpu: bool = False) -> list[Any]:
    """Return a configuration's ``devices`` as the list of their numbers.

    Args:
        devices: a number, a list of numbers, or ``"auto"``.
        on_cpu: whether they are processes on a CPU, where ``"auto"`` is one.

    Raises:
        ValueError: it is something else; the message is one sentence.

    Examples:
        >>> device_numbers(2), device_numbers("0,3"), device_numbers([1]), device_numbers(None)
        ([0, 1], [0, 3], [1], [0])
    """
    if devices is None:
        return [0]
    if isinstance(devices, (ListConfig, list)):
        numbers = list(devices)
    elif re.fullmatch(r"\s*\d*\s*(,\s*\d*\s*)+", str(devices)):
        numbers = [int(number) for number in devices.split(",") if number.strip()]
    elif str(devices) in ("-1", "auto"):
        import torch

        numbers = list(range(1 if on_cpu else max(1, torch.cuda.device_count())))
    elif str(devices).isdecimal():
        numbers = list(range(int(devices)))
    else:
        raise ValueError(f"devices must be a number, a list of numbers or auto, got {devices!r}.")
    if not numbers:
        raise ValueError(
            f"devices must name at least one device, got {devices!r}: devices=1 is one of them, "
            "devices=[0] is the first."
        )
    return numbers
