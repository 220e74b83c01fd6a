"""The settings of margin methods in ``method_kwargs`` and their schedules, read in one place."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from hydra.errors import CompactHydraException
from omegaconf import DictConfig

from solo_margins.config import built, known_settings, plain, read, require, setting, write
from solo_margins.losses.checks import (
    BELOW_ONE,
    NON_NEGATIVE,
    POSITIVE,
    UP_TO_ONE,
    WIDTH,
    require_band,
    require_choice,
    require_count,
    require_flag,
    require_number,
)
from solo_margins.losses.margins import COSINE, RANGES, Margins
from solo_margins.losses.margins import FIELDS as MARGIN_NAMES
from solo_margins.scalings import read_scaling

PLACE = "method_kwargs.schedules"
KEYS = ("from", "to", "epochs")
KINDS = ("constant", "linear", "cosine", "cycle", "log")
# A temperature can also follow the positives.
ALIGNMENT, ALIGNMENT_KEYS = "alignment", ("factor", "reference")
# Settings that are true or false, with their defaults.
FLAGS = {
    "symmetric": True,
    "scale_by_temperature": True,
    "freeze_patch_embedding": False,
    "proj_batch_norm": False,
    "proj_last_batch_norm": False,
}
# Fields that can be scheduled; a ramp cannot start or end at an infinite curvature.
SCHEDULABLE = {
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

    With t the part of ``epochs`` that has passed, at most 1, and n and N the steps that were taken
    and those of all ``epochs``:

    $$
    v = \text{start} + (\text{end} - \text{start}) \, r, \qquad
    r = t \ \text{(linear)}, \quad (1 - \cos \pi t) / 2 \ \text{(cosine)}, \quad
    [t = 1] \ \text{(constant)}, \quad
    \frac{\log(1 + n)}{\log(1 + N)} \ \text{(log)}
    $$

    A cycle goes there and back in every ``epochs`` epochs, $r = (1 - \cos 2 \pi t) / 2$
    with t unbounded. For a temperature that is the schedule of https://arxiv.org/abs/2303.13664.
    A temperature of the kind log is $1 / v$ with the inverses of its two ends, so that its
    inverse grows as the logarithm of time does (https://arxiv.org/abs/2603.12552).
    The value depends on the number of steps alone, so that a resumed run continues with it.

    Args:
        kind: ``"linear"``, ``"cosine"``, ``"log"``, ``"cycle"``, or ``"constant"``, which stays at
            ``start`` and then jumps to ``end``.
        start: value at the first step.
        end: value after ``epochs`` epochs, and from then on; of a cycle, in the middle of it.
        epochs: length of the ramp or of a cycle; fractions are allowed. None is the whole run,
            whichever limit ends it.
        is_inverted: whether the inverse of the value follows the formula.

    Examples:
        >>> ramp = Schedule("linear", start=1.0, end=5.0, epochs=10)
        >>> [ramp.at(epoch) for epoch in (0, 2.5, 10, 50)]
        [1.0, 2.0, 5.0, 5.0]
        >>> cycle = Schedule("cycle", start=1.0, end=5.0, epochs=10)
        >>> [round(cycle.at(epoch), 6) for epoch in (0, 2.5, 5, 10, 15)]
        [1.0, 3.0, 5.0, 1.0, 5.0]
        >>> Schedule("linear", start=1.0, end=5.0, epochs=None).at(1, run_length=4)
        2.0
        >>> cooling = Schedule("log", start=0.5, end=0.1, epochs=3, is_inverted=True)
        >>> [round(cooling.at(step / 5, steps_per_epoch=5), 6) for step in (0, 3, 15)]
        [0.5, 0.166667, 0.1]
    """

    kind: str
    start: float
    end: float
    epochs: float | None
    is_inverted: bool = False

    def settings(self) -> dict[str, Any]:
        """Return the schedule as a configuration holds it."""
        return {"kind": self.kind, "from": self.start, "to": self.end, "epochs": self.epochs}

    def at(
        self, epochs: float, run_length: float = math.inf, steps_per_epoch: float = 1.0
    ) -> float:
        """Return the value after a number of epochs.

        Args:
            epochs: the number, with a fraction inside of an epoch.
            run_length: the epochs of the whole run; a schedule without a length has this one.
            steps_per_epoch: the kind log counts steps.
        """
        length = run_length if self.epochs is None else self.epochs
        if self.kind == "cycle":
            return self._between((1.0 - math.cos(2.0 * math.pi * epochs / length)) / 2.0)
        if epochs >= length:
            return self.end
        progress = epochs / length
        if self.kind == "constant":
            return self.start
        if self.kind == "cosine":
            return self._between((1.0 - math.cos(math.pi * progress)) / 2.0)
        if self.kind == "log":
            steps, last_step = epochs * steps_per_epoch, length * steps_per_epoch
            return self._between(math.log1p(steps) / math.log1p(last_step))
        return self._between(progress)

    def _between(self, ramp: float) -> float:
        """Return the value where a part of the way from start to end is done."""
        if self.is_inverted:
            return 1.0 / ((1.0 - ramp) / self.start + ramp / self.end)
        return self.start + (self.end - self.start) * ramp


@dataclass(frozen=True)
class Alignment:
    """A schedule of the temperature by how close the positives of each step are.

    Args:
        base: the temperature without a change, > 0; see
            `solo_margins.losses.aligned_temperature`.
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
            ``factor`` and ``reference`` instead; see `Alignment`.
        values: field to its own value.
        max_epochs: length of training, None where the number of steps may end it earlier.

    Raises:
        ValueError: a field, a key or a kind is unknown, or a value is out of its field's range.
    """
    schedules: dict[str, Schedule | Alignment] = {}
    for field, given in known_settings(PLACE, entries, SCHEDULABLE).items():
        place = f"{PLACE}.{field}"
        kinds: tuple[str, ...] = KINDS
        keys: tuple[str, ...] = ("kind", *KEYS)
        if field == "temperature":
            kinds = (*kinds, ALIGNMENT)
            keys = (*keys, *ALIGNMENT_KEYS)
        entry = dict(known_settings(place, given, keys))
        for name in list(entry):
            if entry[name] is None:
                del entry[name]
        if not entry:
            continue
        if field not in values:
            raise ValueError(f"{place} has no effect: a method without negatives has no {field}")
        kind = require_choice(f"{place}.kind", entry.pop("kind", "linear"), kinds)
        if kind == ALIGNMENT:
            schedules[field] = _read_alignment(place, entry, values[field])
        else:
            schedules[field] = _read_ramp(place, field, kind, entry, values[field], max_epochs)
    return schedules


def _read_alignment(place: str, entry: Mapping[str, Any], temperature: float) -> Alignment:
    known_settings(f"{place} with kind={ALIGNMENT}", entry, ALIGNMENT_KEYS)
    numbers = {}
    for name, value in entry.items():
        numbers[name] = require_number(f"{place}.{name}", value, UP_TO_ONE)
    return Alignment(temperature, **numbers)


def _read_ramp(
    place: str,
    field: str,
    kind: str,
    entry: Mapping[str, Any],
    own_value: float,
    max_epochs: float | None,
) -> Schedule:
    known_settings(f"{place} with kind={kind}", entry, KEYS)
    end = require_number(f"{place}.to", entry.get("to", own_value), SCHEDULABLE[field])
    default = end if kind == "constant" else NO_EFFECT.get(field, own_value)
    start = require_number(f"{place}.from", entry.get("from", default), SCHEDULABLE[field])
    epochs = entry.get("epochs", max_epochs)
    if epochs is not None:
        allowed = POSITIVE if kind == "cycle" else NON_NEGATIVE
        epochs = require_number(f"{place}.epochs", epochs, allowed)
    is_inverted = field == "temperature" and kind == "log"
    return Schedule(kind, start, end, epochs, is_inverted)


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


# Kinds of negatives to the fields that they read.
READ_BY_NEGATIVES = {
    "standard": (),
    "debiased": ("tau_plus",),
    "hard": ("tau_plus", "beta"),
    "gaussian": ("mean", "width"),
}


@dataclass(frozen=True)
class Negatives:
    """How the negatives of a row are weighted.

    The defaults of mean and width are ours: their paper chooses them for each data set.

    Args:
        kind: ``"standard"``, ``"debiased"``, ``"hard"`` or ``"gaussian"``.
        tau_plus: probability that a negative is of the same class, in [0, 1); read by debiased and
            hard.
        beta: concentration on hard negatives, >= 0; read by hard.
        mean: the cosine of the negatives that weigh most, in [-1, 1]; read by gaussian.
        width: in [0.001, 1000], how far around it others weigh; read by gaussian.
    """

    kind: str = "standard"
    tau_plus: float = 0.1
    beta: float = 1.0
    mean: float = 0.7
    width: float = 1.0

    def __post_init__(self) -> None:
        require_choice("kind", self.kind, READ_BY_NEGATIVES)
        require_number("tau_plus", self.tau_plus, BELOW_ONE)
        require_number("beta", self.beta, NON_NEGATIVE)
        require_number("mean", self.mean, COSINE)
        require_number("width", self.width, WIDTH)

    @property
    def weights(self) -> dict[str, float]:
        """The arguments of the losses."""
        return {name: getattr(self, name) for name in READ_BY_NEGATIVES[self.kind]}


@dataclass(frozen=True)
class MarginSettings:
    """Everything that a margin method reads in ``method_kwargs``, checked and complete.

    The settings of heads and queues are left to solo-learn's methods.
    """

    margins: Margins
    scaling: Any  # of the margins, as the configuration names it
    polarization: Polarization
    negatives: Negatives
    schedules: dict[str, Schedule | Alignment]
    simulated_ranks: int
    temperature: float | None  # None where a method has no negatives, and so none
    symmetric: bool
    scale_by_temperature: bool
    freeze_patch_embedding: bool
    proj_batch_norm: bool
    proj_last_batch_norm: bool

    @classmethod
    def read(cls, cfg: Any, known: Collection[str], has_negatives: bool) -> MarginSettings:
        """Return the settings of a pretraining configuration; absent ones have their defaults.

        Args:
            cfg: the configuration.
            known: the names that ``method_kwargs`` may have.
            has_negatives: whether positives compete with negatives.

        Raises:
            ValueError: a setting is unknown or out of range; the message names it.
        """
        known_settings(
            f"method_kwargs of method={cfg.method}", setting(cfg, "method_kwargs"), known
        )
        margins, scaling = _read_margins(cfg)
        polarization = read(cfg, "method_kwargs.polarization", Polarization)
        negatives = read(cfg, "method_kwargs.negatives", Negatives)
        simulated_ranks = setting(cfg, "method_kwargs.simulated_ranks", 1)
        require_count("method_kwargs.simulated_ranks", simulated_ranks)
        flags = {}
        for name, default in FLAGS.items():
            key = f"method_kwargs.{name}"
            flags[name] = require_flag(key, setting(cfg, key, default))

        values = {**vars(margins), "polarization_weight": polarization.weight}
        temperature = None
        if has_negatives:
            key = "method_kwargs.temperature"
            require(cfg, key)
            temperature = require_number(key, setting(cfg, key), POSITIVE)
            values["temperature"] = temperature
        entries = setting(cfg, PLACE)
        # Only the trainer knows how many epochs a number of steps is.
        is_limited_by_steps = setting(cfg, "max_steps", -1) != -1 or cfg.max_epochs == -1
        length = None if is_limited_by_steps else cfg.max_epochs
        schedules = read_schedules(entries, values, length)

        if not has_negatives and (margins.attenuation != 0.0 or "attenuation" in schedules):
            raise ValueError(
                f"method={cfg.method} has no negatives: leave out method_kwargs.margins.attenuation"
                " and method_kwargs.schedules.attenuation"
            )
        return cls(
            margins=margins,
            scaling=scaling,
            polarization=polarization,
            negatives=negatives,
            schedules=schedules,
            simulated_ranks=simulated_ranks,
            temperature=temperature,
            **flags,
        )

    def refuse_idle_settings(self, by_row: Collection[str] = ()) -> None:
        """Raise ``ValueError`` for a setting of the user's that the others leave without effect.

        It would not change the run, but it would make it another experiment.

        Args:
            by_row: fields of the margins that the method computes for each row.
        """
        margins, polarization, negatives = self.margins, self.polarization, self.negatives
        if math.isinf(margins.curvature) and "curvature" not in self.schedules:
            _refuse_changed("margins", margins, ("curve",), "a finite curvature")
        if margins.attenuation == 0.0 and "attenuation" not in self.schedules:
            reader = "attenuation above 0"
            _refuse_changed("margins", margins, ("attenuation_type",), reader)
        if margins.angular == 0.0 and "angular" not in (*self.schedules, *by_row):
            _refuse_changed("margins", margins, ("beyond_pi",), "another angular than 0")
        if polarization.weight == 0.0 and "polarization_weight" not in self.schedules:
            reader = "weight above 0"
            _refuse_changed("polarization", polarization, ("lower", "upper"), reader)
        for field in ("tau_plus", "beta", "mean", "width"):
            kinds = [kind for kind, fields in READ_BY_NEGATIVES.items() if field in fields]
            if negatives.kind not in kinds:
                _refuse_changed("negatives", negatives, (field,), f"kind={' or kind='.join(kinds)}")

    @property
    def alignment(self) -> Alignment | None:
        """How the temperature follows the positives, or None if it does not."""
        schedule = self.schedules.get("temperature")
        return schedule if isinstance(schedule, Alignment) else None

    def as_config(self) -> dict[str, Any]:
        """Return the settings as a configuration holds them."""
        content: dict[str, Any] = {
            "margins": {name: getattr(self.margins, name) for name in MARGIN_NAMES},
            "polarization": asdict(self.polarization),
            "negatives": asdict(self.negatives),
            "schedules": {name: each.settings() for name, each in self.schedules.items()},
            "simulated_ranks": self.simulated_ranks,
            "temperature": self.temperature,
        }
        content["margins"]["scaling"] = self.scaling
        for name in FLAGS:
            content[name] = getattr(self, name)
        return content

    def with_values(self, values: Mapping[str, Any]) -> MarginSettings:
        """Return the settings with other values of scheduled fields."""
        margins = {field: value for field, value in values.items() if field in RANGES}
        weight = values.get("polarization_weight", self.polarization.weight)
        polarization = replace(self.polarization, weight=weight)
        return replace(self, margins=replace(self.margins, **margins), polarization=polarization)


def _read_margins(cfg: Any) -> tuple[Margins, Any]:
    """Return the margins, and their scaling as the configuration names it."""
    place = "method_kwargs.margins"
    given = plain(cfg, place)
    if not isinstance(given, Mapping):
        return built(place, given, Margins), None
    written = given.get("scaling")
    return built(place, {**given, "scaling": read_scaling(written)}, Margins), written


def take_short_margins(cfg: DictConfig) -> None:
    """Write ``margins`` of a configuration, the short form, into ``method_kwargs.margins``.

    Raises:
        ValueError: a setting has another value there.
    """
    short = setting(cfg, "margins", {})
    known_settings("margins", short, (*MARGIN_NAMES, "scaling"))
    for name, value in short.items():
        key = f"method_kwargs.margins.{name}"
        present = setting(cfg, key)
        if value is None or value == present:
            continue
        if present is not None:
            raise ValueError(
                f"margins.{name}={value} is short for {key}, which is {present}: give one of them"
            )
        write(cfg, key, value)


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
