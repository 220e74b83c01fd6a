"""The settings of margin methods in ``method_kwargs``, read in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from solo_margins.config import read, setting
from solo_margins.losses import checks
from solo_margins.losses.margins import Margins
from solo_margins.methods.schedules import POLARIZATION_WEIGHT, Schedule, read_schedules


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
        checks.require_number("weight", self.weight, checks.NON_NEGATIVE)
        checks.require_band(self.lower, self.upper)


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
        checks.require_choice("kind", self.kind, ("standard", "debiased", "hard"))
        checks.require_number("tau_plus", self.tau_plus, checks.BELOW_ONE)
        checks.require_number("beta", self.beta, checks.NON_NEGATIVE)


@dataclass(frozen=True)
class MarginSettings:
    """Everything that ``method_kwargs`` holds for a margin method, checked and complete."""

    margins: Margins
    polarization: Polarization
    negatives: Negatives
    schedules: dict[str, Schedule]

    @classmethod
    def read(cls, cfg: Any) -> MarginSettings:
        """Return the settings of a pretraining configuration; absent ones have their defaults.

        Raises:
            ValueError: a setting is unknown or out of range; the message names it.
        """
        margins = read(cfg, "method_kwargs.margins", Margins)
        polarization = read(cfg, "method_kwargs.polarization", Polarization)
        values = {**asdict(margins), POLARIZATION_WEIGHT: polarization.weight}
        entries = setting(cfg, "method_kwargs.schedules")
        schedules = read_schedules(entries, values, cfg.max_epochs)
        negatives = read(cfg, "method_kwargs.negatives", Negatives)
        return cls(margins, polarization, negatives, schedules)

    def as_config(self) -> dict[str, Any]:
        """Return the settings as a configuration holds them."""
        schedules = {field: schedule.settings() for field, schedule in self.schedules.items()}
        return {**asdict(self), "schedules": schedules}

    def with_values(self, values: Mapping[str, Any]) -> MarginSettings:
        """Return the settings with other values of scheduled fields."""
        margins = dict(values)
        weight = margins.pop(POLARIZATION_WEIGHT, self.polarization.weight)
        polarization = replace(self.polarization, weight=weight)
        return replace(self, margins=replace(self.margins, **margins), polarization=polarization)
