"""Settings that change over training: margins that start gently, a penalty that grows."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from solo_margins.losses.checks import require_choice, require_number
from solo_margins.losses.margins import Margins
from solo_margins.methods.settings import Polarization

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
    r"""The value of one setting at any time of training.

    With t the share of ``epochs`` that has passed, at most 1:

    .. math:: v(t) = \text{start} + (\text{end} - \text{start}) \, r(t), \qquad
        r(t) = t \ \text{(linear)}, \quad (1 - \cos \pi t) / 2 \ \text{(cosine)}, \quad
        [t = 1] \ \text{(constant)}

    The value depends on the number of steps alone, so that a resumed run goes on with it.

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

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "Schedule":
        """Return the schedule of complete settings, see :meth:`settings`."""
        return cls(*(settings[key] for key in KEYS))

    def settings(self) -> dict[str, Any]:
        """Return the schedule as it is written in a configuration."""
        return dict(zip(KEYS, (self.kind, self.start, self.end, self.epochs), strict=True))

    def at(self, epochs: float) -> float:
        """Return the value after so many epochs."""
        share = min(1.0, epochs / self.epochs) if self.epochs > 0 else 1.0
        if share == 1.0:
            return self.end
        if self.kind == "constant":
            return self.start
        risen = share if self.kind == "linear" else (1.0 - math.cos(math.pi * share)) / 2.0
        return self.start + (self.end - self.start) * risen


def read_schedules(
    given: Mapping[str, Any] | None,
    margins: Margins,
    polarization: Polarization,
    max_epochs: float,
) -> dict[str, Schedule]:
    """Return the schedules that ``method_kwargs.schedules`` describes, by field.

    Args:
        given: field to ``kind``, ``from``, ``to`` and ``epochs``, each of them optional: the kind
            is linear, ``to`` the field's own setting, ``from`` the value without effect (for a
            constant: ``to``), and ``epochs`` all of training. A field without any of them is not
            scheduled.
        margins: the settings of the margins.
        polarization: the settings of the penalty.
        max_epochs: length of training.

    Raises:
        ValueError: a field, a key or a kind is unknown, or a value leaves its field's range.
    """
    place = "method_kwargs.schedules"
    values = {**asdict(margins), POLARIZATION_WEIGHT: polarization.weight}
    schedules = {}
    for field, entry in (given or {}).items():
        if field not in FIELDS:
            raise ValueError(
                f"{place} has no setting {field!r}; its settings are {', '.join(FIELDS)}"
            )
        if entry is not None and not isinstance(entry, Mapping):
            raise ValueError(f"{place}.{field} must hold {', '.join(KEYS)}, got {entry!r}")
        entry = {key: value for key, value in (entry or {}).items() if value is not None}
        for key in entry.keys() - set(KEYS):
            raise ValueError(
                f"{place}.{field} has no setting {key!r}; its settings are {', '.join(KEYS)}"
            )
        if entry:
            schedules[field] = _read_schedule(
                f"{place}.{field}", field, entry, values[field], max_epochs
            )
            _check_ends(f"{place}.{field}", field, schedules[field], margins, polarization)
    return schedules


def _read_schedule(
    place: str, field: str, entry: Mapping[str, Any], value: float, max_epochs: float
) -> Schedule:
    kind = require_choice(
        f"{place}.kind", entry.get("kind", "linear"), ("constant", "linear", "cosine")
    )
    end = require_number(f"{place}.to", entry.get("to", value), "a finite number")
    neutral = end if kind == "constant" else NO_EFFECT.get(field)
    start = require_number(f"{place}.from", entry.get("from", neutral), "a finite number")
    epochs = entry.get("epochs", max_epochs)
    epochs = require_number(f"{place}.epochs", epochs, "a number >= 0", low=0.0)
    return Schedule(kind, start, end, epochs)


def _check_ends(
    place: str, field: str, schedule: Schedule, margins: Margins, polarization: Polarization
) -> None:
    for key, end in (("from", schedule.start), ("to", schedule.end)):
        try:
            scheduled(margins, polarization, {field: end})
        except ValueError as reason:
            # "positive_scale must be a number > 0, got 0.0"
            _, _, complaint = str(reason).partition(" ")
            raise ValueError(f"{place}.{key} {complaint}") from None


def scheduled(
    margins: Margins, polarization: Polarization, values: Mapping[str, float]
) -> tuple[Margins, Polarization]:
    """Return margins and polarization with some of their settings replaced."""
    weight = values.get(POLARIZATION_WEIGHT, polarization.weight)
    others: Any = {name: value for name, value in values.items() if name != POLARIZATION_WEIGHT}
    return replace(margins, **others), replace(polarization, weight=weight)
