"""The settings of the lens in a configuration."""

from dataclasses import dataclass

from solo_margins.losses.checks import require_choice, require_count, require_flag


@dataclass(frozen=True)
class LensSettings:
    """Whether and how the lens observes a run, as configurations say it.

    Attributes:
        enabled: whether it does.
        every: steps between two observations; None is 50, or an epoch if that is shorter.
        on_collapse: ``"stop"`` ends a run that seems to collapse; its checkpoint is kept.

    Raises:
        ValueError: a setting is out of its range; the message names it.
    """

    enabled: bool = False
    every: int | None = None
    on_collapse: str = "warn"

    def __post_init__(self) -> None:
        require_flag("enabled", self.enabled)
        require_count("every", self.every, optional=True)
        require_choice("on_collapse", self.on_collapse, ("warn", "stop"))
