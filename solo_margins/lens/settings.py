"""The settings ``lens.*`` of a configuration."""

from __future__ import annotations

from dataclasses import dataclass

ON_COLLAPSE = ("warn", "stop")
LARGEST_DEFAULT_INTERVAL = 50


@dataclass(frozen=True)
class LensSettings:
    """Whether and how a training is watched."""

    enabled: bool = False
    every: int | None = None
    """Steps from one observation to the next; None is 50, or an epoch where that is shorter."""
    on_collapse: str = "warn"
    """``"stop"`` ends a training that shows a sign of collapse; its checkpoint is kept."""

    def __post_init__(self) -> None:
        if not isinstance(self.enabled, bool):
            raise ValueError(f"enabled must be true or false, got {self.enabled!r}.")
        every = self.every
        is_number = isinstance(every, int) and not isinstance(every, bool) and every > 0
        if every is not None and not is_number:
            raise ValueError(f"every must be a whole number above 0 or null, got {every!r}.")
        if self.on_collapse not in ON_COLLAPSE:
            raise ValueError(
                f"on_collapse must be one of {', '.join(ON_COLLAPSE)}, got {self.on_collapse!r}."
            )

    def interval(self, batches_per_epoch: float) -> int:
        """Return the number of steps between two observations.

        >>> LensSettings().interval(400), LensSettings().interval(5)
        (50, 5)
        >>> LensSettings(every=7).interval(5)
        7
        """
        if self.every is not None:
            return self.every
        return int(max(1, min(LARGEST_DEFAULT_INTERVAL, batches_per_epoch)))
