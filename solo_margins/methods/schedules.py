"""Settings that change over training: margins that start gently, a penalty that grows."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from solo_margins.losses.checks import require_number

KINDS = ("constant", "linear", "cosine")
KEYS = ("kind", "from", "to", "epochs")

POLARIZATION_WEIGHT = "polarization_weight"
# Where a ramp starts unless it says so: the value that has no effect. A curvature has none that is
# a number.
NO_EFFECT = {
    "angular": 0.0,
    "subtractive": 0.0,
    "positive_scale": 1.0,
    "attenuation": 0.0,
    POLARIZATION_WEIGHT: 0.0,
}
FIELDS = (*NO_EFFECT, "curvature")


@dataclass(frozen=True)
class Schedule:
    r"""The value of one setting at any time of the training.

    With t the share of ``epochs`` that has passed, at most 1:

    .. math:: v(t) = \text{start} + (\text{end} - \text{start}) \, r(t), \qquad
        r(t) = t \ \text{(linear)}, \quad (1 - \cos \pi t) / 2 \ \text{(cosine)}, \quad
        [t = 1] \ \text{(constant)}

    The value depends on the number of steps alone, so that a resumed training goes on with it.

    Args:
        kind: ``"linear"``, ``"cosine"``, or ``"constant"``, which stays at ``start`` and then
            jumps to ``end``.
        start: value at the first step.
        end: value after ``epochs`` epochs, and from then on.
        epochs: length of the ramp; fractions are allowed.

    Example:
        >>> ramp = Schedule("linear", start=1.0, end=5.0, epochs=10)
        >>> [ramp.at(epoch) for epoch in (0, 2.5, 10, 50)]
        [1.0, 2.0, 5.0, 5.0]
    """

    kind: str
    start: float
    end: float
    epochs: float

    def at(self, epochs: float) -> float:
        """Return the value after so many epochs."""
        share = min(1.0, epochs / self.epochs) if self.epochs > 0 else 1.0
        if share == 1.0:
            return self.end
        if self.kind == "constant":
            return self.start
        risen = share if self.kind == "linear" else (1.0 - math.cos(math.pi * share)) / 2.0
        return self.start + (self.end - self.start) * risen


def schedules_from(
    settings: Mapping[str, Any] | None, values: Mapping[str, float], max_epochs: float
) -> dict[str, Schedule]:
    """Return the schedules that ``method_kwargs.schedules`` describes, by field.

    Args:
        settings: field to ``kind``, ``from``, ``to`` and ``epochs``, each of them optional: the
            kind is linear, ``to`` the field's own setting, ``from`` the value without effect (for
            a constant: ``to``), and ``epochs`` the whole training. A field without any of them is
            not scheduled.
        values: the settings of the fields.
        max_epochs: length of the training.

    Raises:
        ValueError: a field, a key or a kind is unknown, or a value is no finite number.
    """
    found = {}
    for field, given in (settings or {}).items():
        place = f"method_kwargs.schedules.{field}"
        if field not in FIELDS:
            raise ValueError(
                f"method_kwargs.schedules has no field {field!r}; its fields are "
                f"{', '.join(FIELDS)}"
            )
        if given is not None and not isinstance(given, Mapping):
            raise ValueError(f"{place} must hold {', '.join(KEYS)}, got {given!r}")
        for key in given or {}:
            if key not in KEYS:
                raise ValueError(f"{place} has no key {key!r}; its keys are {', '.join(KEYS)}")
        given = {key: value for key, value in (given or {}).items() if value is not None}
        if not given:
            continue
        kind = given.get("kind", "linear")
        if kind not in KINDS:
            raise ValueError(f"{place}.kind must be one of {', '.join(KINDS)}, got {kind!r}")
        end = require_number(f"{place}.to", given.get("to", values[field]), "a finite number")
        neutral = end if kind == "constant" else NO_EFFECT.get(field)
        start = require_number(f"{place}.from", given.get("from", neutral), "a finite number")
        epochs = require_number(
            f"{place}.epochs", given.get("epochs", max_epochs), "a number >= 0", low=0.0
        )
        found[field] = Schedule(kind, start, end, epochs)
    return found
