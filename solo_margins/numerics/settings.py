"""The settings ``numerics.*`` of a configuration."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from omegaconf import DictConfig, OmegaConf

ON_NONFINITE = ("stop", "skip")


@dataclass(frozen=True)
class NumericsSettings:
    """What to do about a step whose loss or gradient is not finite."""

    on_nonfinite: str = "stop"
    """``"skip"`` leaves weights, optimiser and teacher as they were and goes on."""
    max_consecutive_skips: int = 10
    """Skipped steps in a row after which a training stops nevertheless."""

    def __post_init__(self) -> None:
        if self.on_nonfinite not in ON_NONFINITE:
            raise ValueError(
                f"numerics.on_nonfinite must be one of {', '.join(ON_NONFINITE)}, "
                f"got {self.on_nonfinite!r}."
            )
        most = self.max_consecutive_skips
        if isinstance(most, bool) or not isinstance(most, int) or most < 1:
            raise ValueError(
                f"numerics.max_consecutive_skips must be a whole number above 0, got {most!r}."
            )


def numerics_settings(cfg: DictConfig) -> NumericsSettings:
    """Return the settings of a configuration.

    Raises:
        ValueError: a setting is unknown or impossible; the message is one sentence.
    """
    given: Any = OmegaConf.select(cfg, "numerics", default=None)
    given = {} if given is None else given
    if OmegaConf.is_config(given):
        given = OmegaConf.to_container(given, resolve=True)
    if not isinstance(given, dict):
        raise ValueError(
            f"numerics must be settings such as numerics.on_nonfinite=stop, got {given!r}."
        )
    known = [field.name for field in fields(NumericsSettings)]
    for name in given:
        if name not in known:
            raise ValueError(
                f"numerics has no setting {name!r}; its settings are {', '.join(known)}."
            )
    return NumericsSettings(**{str(name): value for name, value in given.items()})
