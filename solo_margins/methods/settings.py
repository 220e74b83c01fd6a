"""The settings of margin methods in ``method_kwargs`` and their schedules, read in one place."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from hydra.errors import CompactHydraException

from solo_margins.config import known_settings, read, setting
from solo_margins.losses.checks import (
    BELOW_ONE,
    NON_NEGATIVE,
    POSITIVE,
    UP_TO_ONE,
    require_band,
    require_choice,
    require_count,
    require_number,
)
from solo_margins.losses.margins import RANGES, Margins

PLACE = "method_kwargs.schedules"
KEYS = ("kind", "from", "to", "epochs")
KINDS = ("constant", "linear", "cosine", "cycle")
# A temperature can also follow the positives.
ALIGNMENT, ALIGNMENT_KEYS = "alignment", ("kind", "factor", "reference")
# Fields that can be scheduled; a ramp cannot start or end at an infinite curvature.
FIELDS = {
    **RANGES,
    "curvature": POSITIVE,
    "polarization_weight": NON_NEGATIVE,
    "temperature": POSITIVE,
}
# Default start of a ramp; a temperature starts at its own value. A curvature without effect is
# infinite, so that its start must be set.
NO_EFFECT = {**asdict(Margins()), "polarization_weight": 0.0}


class MethodSettingError(ValueError, CompactHydraException):
    """A setting of a method that the user can mend; Hydra prints its message without a trace."""


@contextmanager
def setting_errors() -> Iterator[None]:
    """Turn a ``ValueError`` into one that Hydra prints as one sentence, also in other programs."""
    try:
        yield
    except ValueError as error:
        raise MethodSettingError(str(error)) from error


@dataclass(frozen=True)
class Schedule:
    r"""The value of one setting during training.

    With t the part of ``epochs`` that has passed, at most 1:

    .. math:: v(t) = \text{start} + (\text{end} - \text{start}) \, r(t), \qquad
        r(t) = t \ \text{(linear)}, \quad (1 - \cos \pi t) / 2 \ \text{(cosine)}, \quad
        [t = 1] \ \text{(constant)}

    A cycle goes there and back in every ``epochs`` epochs, :math:`r(t) = (1 - \cos 2 \pi t) / 2`
    with t unbounded. For a temperature that is the schedule of https://arxiv.org/abs/2303.13664.
    The value depends on the number of steps alone, so that a resumed run continues with it.

    Args:
        kind: ``"linear"``, ``"cosine"``, ``"cycle"``, or ``"constant"``, which stays at ``start``
            and then jumps to ``end``.
        start: value at the first step.
        end: value after ``epochs`` epochs, and from then on; of a cycle, in the middle of it.
        epochs: length of the ramp or of a cycle; fractions are allowed. None is the whole run,
            whichever limit ends it.

    Example:
        >>> ramp = Schedule("linear", start=1.0, end=5.0, epochs=10)
        >>> [ramp.at(epoch) for epoch in (0, 2.5, 10, 50)]
        [1.0, 2.0, 5.0, 5.0]
        >>> cycle = Schedule("cycle", start=1.0, end=5.0, epochs=10)
        >>> [round(cycle.at(epoch), 6) for epoch in (0, 2.5, 5, 10, 15)]
        [1.0, 3.0, 5.0, 1.0, 5.0]
        >>> Schedule("linear", start=1.0, end=5.0, epochs=None).at(1, run_length=4)
        2.0
    """

    kind: str
    start: float
    end: float
    epochs: float | None

    def settings(self) -> dict[str, Any]:
        """Return the schedule as a configuration holds it."""
        return dict(zip(KEYS, (self.kind, self.start, self.end, self.epochs), strict=True))

    def at(self, epochs: float, run_length: float = math.inf) -> float:
        """Return the value after a number of epochs.

        Args:
            epochs: the number, with a fraction inside of an epoch.
            run_length: the epochs of the whole run; a schedule without a length has this one.
        """
        length = run_length if self.epochs is None else self.epochs
        if self.kind == "cycle":
            ramp = (1.0 - math.cos(2.0 * math.pi * epochs / length)) / 2.0
            return self.start + (self.end - self.start) * ramp
        progress = min(1.0, epochs / length) if length > 0 else 1.0
        if progress == 1.0:
            return self.end
        if self.kind == "constant":
            return self.start
        ramp = progress if self.kind == "linear" else (1.0 - math.cos(math.pi * progress)) / 2.0
        return self.start + (self.end - self.start) * ramp


@dataclass(frozen=True)
class Alignment:
    """A schedule of the temperature by how close the positives of each step are.

    Args:
        base: the temperature without a change, > 0; see
            :func:`solo_margins.losses.aligned_temperature`.
        factor: how strongly the temperature follows the positives, in [0, 1].
        reference: the mean cosine of positives at which it is ``base``, in [0, 1].
    """

    base: float
    factor: float = 0.5
    reference: float = 0.0

    def settings(self) -> dict[str, Any]:
        """Return the schedule as a configuration holds it."""
        return {"kind": ALIGNMENT, "factor": self.factor, "reference": self.reference}


def read_schedules(
    entries: Any, values: Mapping[str, Any], max_epochs: float | None
) -> dict[str, Schedule | Alignment]:
    """Return the schedules in ``method_kwargs.schedules``, by field.

    Args:
        entries: field to ``kind``, ``from``, ``to`` and ``epochs``, all optional: the kind is
            linear, ``to`` the field's own value, ``from`` the value without effect (for a
            constant: ``to``, for the temperature: its own), and ``epochs`` all of training. A
            field without any of them is not scheduled. A temperature of the kind alignment has
            ``factor`` and ``reference`` instead; see :class:`Alignment`.
        values: field to its own value.
        max_epochs: length of training, None where the number of steps may end it earlier.

    Raises:
        ValueError: a field, a key or a kind is unknown, or a value is out of its field's range.
    """
    schedules: dict[str, Schedule | Alignment] = {}
    for field, entry in known_settings(PLACE, entries, FIELDS).items():
        place = f"{PLACE}.{field}"
        can_align = field == "temperature"
        keys = (*KEYS, *ALIGNMENT_KEYS[1:]) if can_align else KEYS
        entry = {k: v for k, v in known_settings(place, entry, keys).items() if v is not None}
        if not entry:
            continue
        kinds = (*KINDS, ALIGNMENT) if can_align else KINDS
        kind = require_choice(f"{place}.kind", entry.pop("kind", "linear"), kinds)
        is_aligned = kind == ALIGNMENT
        known_settings(f"{place} with kind={kind}", entry, ALIGNMENT_KEYS if is_aligned else KEYS)
        if is_aligned:
            numbers = {k: require_number(f"{place}.{k}", v, UP_TO_ONE) for k, v in entry.items()}
            schedules[field] = Alignment(values[field], **numbers)
            continue
        end = require_number(f"{place}.to", entry.get("to", values[field]), FIELDS[field])
        default = end if kind == "constant" else NO_EFFECT.get(field, values[field])
        start = require_number(f"{place}.from", entry.get("from", default), FIELDS[field])
        allowed = POSITIVE if kind == "cycle" else NON_NEGATIVE
        epochs = entry.get("epochs", max_epochs)
        if epochs is not None:
            epochs = require_number(f"{place}.epochs", epochs, allowed)
        schedules[field] = Schedule(kind, start, end, epochs)
    return schedules


@dataclass(frozen=True)
class Polarization:
    """Weight and band of the distance polarization regulariser; weight 0 switches it off.

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
        require_number("weight", self.weight, NON_NEGATIVE)
        require_band(self.lower, self.upper)


@dataclass(frozen=True)
class Negatives:
    """How the negatives of a row are weighted.

    Args:
        kind: ``"standard"``, ``"debiased"`` or ``"hard"``.
        tau_plus: probability that a negative is of the same class, in [0, 1); unused by standard.
        beta: concentration on hard negatives, >= 0; used by hard only.
    """

    kind: str = "standard"
    tau_plus: float = 0.1
    beta: float = 1.0

    def __post_init__(self) -> None:
        require_choice("kind", self.kind, ("standard", "debiased", "hard"))
        require_number("tau_plus", self.tau_plus, BELOW_ONE)
        require_number("beta", self.beta, NON_NEGATIVE)

    @property
    def weights(self) -> dict[str, Any]:
        """The share of false negatives and the hardness as losses take them, 0 for none."""
        tau_plus = 0.0 if self.kind == "standard" else self.tau_plus
        return {"tau_plus": tau_plus, "beta": self.beta if self.kind == "hard" else 0.0}


@dataclass(frozen=True)
class MarginSettings:
    """Everything that ``method_kwargs`` holds for a margin method, checked and complete."""

    margins: Margins
    polarization: Polarization
    negatives: Negatives
    schedules: dict[str, Schedule | Alignment]
    simulated_ranks: int = 1

    @classmethod
    def read(cls, cfg: Any) -> MarginSettings:
        """Return the settings of a pretraining configuration; absent ones have their defaults.

        Raises:
            ValueError: a setting is unknown, out of range or without effect; the message names it.
        """
        margins = read(cfg, "method_kwargs.margins", Margins)
        polarization = read(cfg, "method_kwargs.polarization", Polarization)
        values = {**asdict(margins), "polarization_weight": polarization.weight}
        values["temperature"] = setting(cfg, "method_kwargs.temperature", 1.0)
        entries = setting(cfg, "method_kwargs.schedules")
        # Only the trainer knows how many epochs a number of steps is.
        is_limited_by_steps = setting(cfg, "max_steps", -1) != -1 or cfg.max_epochs == -1
        length = None if is_limited_by_steps else cfg.max_epochs
        schedules = read_schedules(entries, values, length)
        negatives = read(cfg, "method_kwargs.negatives", Negatives)
        simulated_ranks = setting(cfg, "method_kwargs.simulated_ranks", 1)
        require_count("method_kwargs.simulated_ranks", simulated_ranks)
        settings = cls(margins, polarization, negatives, schedules, simulated_ranks)
        settings.refuse_idle_settings()
        return settings

    def refuse_idle_settings(self) -> None:
        """Raise ``ValueError`` for a setting of the user's that the others leave without effect.

        It would not change the run, but it would make it another experiment.
        """
        margins, polarization, negatives = self.margins, self.polarization, self.negatives
        if math.isinf(margins.curvature) and "curvature" not in self.schedules:
            _refuse_changed("margins", margins, ("curve",), "a finite curvature")
        if margins.attenuation == 0.0 and "attenuation" not in self.schedules:
            reader = "attenuation above 0"
            _refuse_changed("margins", margins, ("attenuation_type",), reader)
        if margins.angular == 0.0 and "angular" not in self.schedules:
            _refuse_changed("margins", margins, ("beyond_pi",), "angular above 0")
        if polarization.weight == 0.0 and "polarization_weight" not in self.schedules:
            reader = "weight above 0"
            _refuse_changed("polarization", polarization, ("lower", "upper"), reader)
        if negatives.kind == "standard":
            reader = "kind=debiased or kind=hard"
            _refuse_changed("negatives", negatives, ("tau_plus",), reader)
        if negatives.kind != "hard":
            _refuse_changed("negatives", negatives, ("beta",), "kind=hard")

    @property
    def alignment(self) -> Alignment | None:
        """How the temperature follows the positives, or None if it does not."""
        schedule = self.schedules.get("temperature")
        return schedule if isinstance(schedule, Alignment) else None

    def as_config(self) -> dict[str, Any]:
        """Return the settings as a configuration holds them."""
        schedules = {field: schedule.settings() for field, schedule in self.schedules.items()}
        return {**asdict(self), "schedules": schedules}

    def with_values(self, values: Mapping[str, Any]) -> MarginSettings:
        """Return the settings with other values of scheduled fields."""
        margins = {field: value for field, value in values.items() if field in RANGES}
        weight = values.get("polarization_weight", self.polarization.weight)
        polarization = replace(self.polarization, weight=weight)
        return replace(self, margins=replace(self.margins, **margins), polarization=polarization)


def _refuse_changed(group: str, settings: Any, names: tuple[str, ...], reader: str) -> None:
    """Raise ``ValueError`` if a setting that nothing reads differs from its default."""
    defaults = type(settings)()
    for name in names:
        value = getattr(settings, name)
        if value != getattr(defaults, name):
            raise ValueError(
                f"method_kwargs.{group}.{name}={value} has no effect without {reader}: set that "
                f"in method_kwargs.{group} as well, or leave {name} out"
            )
