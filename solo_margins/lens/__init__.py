"""Shows what margins do to gradients: curves, a callback for training, and a report.

``from solo_margins.lens import Lens`` is the observer of a run, in Lightning or in a loop of one's
own; nothing else is imported with this package.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from solo_margins.losses.checks import require_choice, require_count, require_flag

if TYPE_CHECKING:
    from solo_margins.lens.callback import Lens as Lens


@dataclass(frozen=True)
class LensSettings:
    """Whether and how the lens observes a run, as configurations say it.

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


def __getattr__(name: str) -> Any:
    if name != "Lens":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from solo_margins.lens.callback import Lens

    return Lens
