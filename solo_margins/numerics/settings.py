"""The settings ``numerics.*`` of a configuration."""

from __future__ import annotations

from dataclasses import dataclass

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
                f"on_nonfinite must be one of {', '.join(ON_NONFINITE)}, got {self.on_nonfinite!r}."
            )
        most = self.max_consecutive_skips
        if isinstance(most, bool) or not isinstance(most, int) or most < 1:
            raise ValueError(f"max_consecutive_skips must be a whole number above 0, got {most!r}.")
