"""Settings of the margin methods, read from a configuration and checked before training starts."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from solo_margins.losses.checks import require_band, require_number
from solo_margins.losses.margins import Margins

# YAML writes infinity as .inf; on Hydra's command line that stays a word.
INFINITY_WORDS = (".inf", "inf", "infinity")

NEGATIVES = ("standard", "debiased", "hard")

Settings = TypeVar("Settings")


@dataclass(frozen=True)
class Polarization:
    """How strongly, and where, pairwise distances are driven out of a band; off at weight 0.

    The paper gives no values: this band did best in a small sweep on handwritten digits.

    Args:
        weight: λ >= 0.
        lower: δ⁺, where the band begins; 0 < lower < upper.
        upper: δ⁻, where the band ends; lower < upper < 1.
    """

    weight: float = 0.0
    lower: float = 0.2
    upper: float = 0.4

    def __post_init__(self) -> None:
        require_number("weight", self.weight, "a number >= 0", low=0.0)
        require_band(self.lower, self.upper)


@dataclass(frozen=True)
class Negatives:
    """What is summed over the negatives of a SimCLR row.

    Args:
        kind: ``"standard"``, ``"debiased"`` or ``"hard"``.
        tau_plus: probability that a negative is of the same class, in [0, 1); not for standard.
        beta: concentration on hard negatives, >= 0; for hard alone.
    """

    kind: str = "standard"
    tau_plus: float = 0.1
    beta: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in NEGATIVES:
            raise ValueError(f"kind must be one of {', '.join(NEGATIVES)}, got {self.kind!r}")
        require_number(
            "tau_plus", self.tau_plus, "a number in [0, 1)", low=0.0, high=1.0, open_high=True
        )
        require_number("beta", self.beta, "a number >= 0", low=0.0)


def read_settings(place: str, kind: type[Settings], given: Mapping[str, Any] | None) -> Settings:
    """Return the settings at a place of the configuration; absent fields have their defaults.

    Args:
        place: where they stand, for messages.
        kind: the dataclass that holds them.
        given: field to value.

    Raises:
        ValueError: a field is unknown or leaves its range; the message names the setting.

    Example:
        >>> place = "method_kwargs.margins"
        >>> read_settings(place, Margins, {"positive_scale": 20, "curvature": ".inf"}).curvature
        inf
        >>> read_settings(place, Margins, {"scale": 20})
        Traceback (most recent call last):
        ...
        ValueError: method_kwargs.margins has no field 'scale'; its fields are angular, \
subtractive, positive_scale, curvature, attenuation, attenuation_type, curve, beyond_pi
    """
    if given is not None and not isinstance(given, Mapping):
        raise ValueError(f"{place} must hold fields and their values, got {given!r}")
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    values = {}
    for name, value in (given or {}).items():
        if name not in known:
            raise ValueError(f"{place} has no field {name!r}; its fields are {', '.join(known)}")
        is_infinity = isinstance(value, str) and value.lower() in INFINITY_WORDS
        values[str(name)] = math.inf if is_infinity else value
    try:
        return kind(**values)
    except ValueError as reason:
        raise ValueError(f"{place}.{reason}") from None


def margins_from(given: Mapping[str, Any] | None) -> Margins:
    """Return the margins that ``method_kwargs.margins`` describes; absent fields are off."""
    return read_settings("method_kwargs.margins", Margins, given)


def polarization_from(given: Mapping[str, Any] | None) -> Polarization:
    """Return what ``method_kwargs.polarization`` describes."""
    return read_settings("method_kwargs.polarization", Polarization, given)


def negatives_from(given: Mapping[str, Any] | None) -> Negatives:
    """Return what ``method_kwargs.negatives`` describes."""
    return read_settings("method_kwargs.negatives", Negatives, given)
