"""Shows what margins do to gradients: curves, a callback for training, and a report."""

from dataclasses import dataclass

from solo_margins.losses.checks import require_choice, require_count, require_flag

LARGEST_DEFAULT_INTERVAL = 50


@dataclass(frozen=True)
class LensSettings:
    """Whether and how the lens observes a run.

    Attributes:
        enabled: whether it does.
        every: steps between two observations; None is 50, or an epoch if that is shorter.
        on_collapse: ``"stop"`` ends a run that seems to collapse; its checkpoint is kept.
    """

    enabled: bool = False
    every: int | None = None
    on_collapse: str = "warn"

    def __post_init__(self) -> None:
        require_flag("enabled", self.enabled)
        require_count("every", self.every, optional=True)
        require_choice("on_collapse", self.on_collapse, ("warn", "stop"))

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
