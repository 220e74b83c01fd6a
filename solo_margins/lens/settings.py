"""The settings ``lens.*`` of a configuration."""

from __future__ import annotations

from dataclasses import dataclass

from solo_margins.losses.checks import require_choice

ON_COLLAPSE = ("warn", "stop")
LARGEST_DEFAULT_INTERVAL = 50


@dataclass(frozen=True)
class LensSettings:
    """Whether and how the lens observes a run.

    Attributes:
        enabled: whether it does.
        every: steps from one observation to the next; None is 50, or an epoch if that is shorter.
        on_collapse: ``"stop"`` ends a run that shows a sign of collapse; its checkpoint is kept.
    """

    enabled: bool = False
    every: int | None = None
    on_collapse: str = "warn"

    def __post_init__(self) -> None:
        if not isinstance(self.enabled, bool):
            raise ValueError(f"enabled must be true or false, got {self.enabled!r}")
        every = self.every
        is_number = isinstance(every, int) and not isinstance(every, bool) and every > 0
        if every is not None and not is_number:
            raise ValueError(f"every must be a whole number above 0 or null, got {every!r}")
        require_choice("on_collapse", self.on_collapse, ON_COLLAPSE)

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
