"""Warnings about a run's health, each once and with the setting to change."""

import math
from collections import defaultdict
from dataclasses import dataclass, field

from solo_margins.lens.records import Observation
from solo_margins.losses import Margins

# Consecutive observations that must show a problem, because training starts near some of them.
PATIENCE = {"collapse_loss": 5, "collapse_rank": 5, "collapse_angles": 5, "saturated_q": 2}
# Problems after which lens.on_collapse=stop ends a run.
COLLAPSE = ("collapse_loss", "collapse_rank", "collapse_angles")

NEAR_CHANCE = 0.98  # share of log N that a loss must be above to count as chance
LOW_RANK = 1.5
LOST_RANK = 0.25  # share of its highest value below which an effective rank has fallen
MERGED = 0.55  # probability that a positive is closer than a negative; 0.5 is chance
EXPLODING = 50.0  # more than twice the largest scale that the margins paper recommends (20)
SATURATED_ROWS = 0.9
SILENCED_POSITIVES = 0.5

# Values up to which a margin is not the cause of a collapse, the most likely cause first.
HARMLESS = {"positive_scale": 1.0, "attenuation": 0.9, "angular": 0.0, "subtractive": 0.0}


@dataclass
class HealthChecks:
    """Checks observations in order and returns new problems.

    Args:
        grace_epochs: epochs at the start in which collapse is not reported.
    """

    grace_epochs: float = 0.0
    _warned: set[str] = field(default_factory=set)
    _in_a_row: dict[str, int] = field(default_factory=dict)
    _highest_rank: float = 0.0

    def check(self, seen: Observation) -> list[tuple[str, str]]:
        """Return name and text of every new problem."""
        self._highest_rank = max(self._highest_rank, seen.scalars.get("effective_rank", 0.0))
        problems = self._problems(seen)
        if seen.epoch < self.grace_epochs:
            problems = {name: text for name, text in problems.items() if name not in COLLAPSE}
        self._in_a_row = {name: self._in_a_row.get(name, 0) + 1 for name in problems}
        new = [
            (name, text)
            for name, text in problems.items()
            if self._in_a_row[name] >= PATIENCE.get(name, 1) and name not in self._warned
        ]
        self._warned.update(name for name, _ in new)
        return new

    def _problems(self, seen: Observation) -> dict[str, str]:
        """Return the problems of a batch by name; numbers may be absent or NaN."""
        scalars, margins = defaultdict(lambda: math.nan, seen.scalars), Margins(**seen.margins)
        loss, chance, rank = scalars["loss"], scalars["chance_loss"], scalars["effective_rank"]
        separation, scale = scalars["angle_separation"], scalars["effective_scale"]
        saturated, silenced = scalars["saturated_q"], scalars["silenced_positives"]
        # With a margin the loss at chance is higher than log N.
        is_at_chance = loss > NEAR_CHANCE * chance and not (margins.angular or margins.subtractive)
        images = f"{math.exp(chance):.0f}"

        def now(name: str) -> str:
            return f"method_kwargs.margins.{name} (now {getattr(margins, name):g})"

        large = [name for name, limit in HARMLESS.items() if getattr(margins, name) > limit]
        advice = less = "lower optimizer.lr or lengthen its warm-up"
        if large:
            advice = less = f"lower {now(large[0])} or ramp it up by a schedule"
        if margins.attenuation > 0.0 and margins.positive_scale <= EXPLODING:
            less = f"lower {now('attenuation')}"
        problems = {
            "collapse_loss": is_at_chance
            and f"the loss is {loss:.2f}, that of guessing among {images} images "
            f"(log {images} = {chance:.2f}): {advice}",
            "collapse_rank": (rank < LOW_RANK or rank < LOST_RANK * self._highest_rank)
            and f"the effective rank of the features is {rank:.1f}, after "
            f"{self._highest_rank:.1f} at its highest: {advice}",
            "collapse_angles": separation < MERGED
            and "positive and negative angles have merged (a positive is closer with probability "
            f"{separation:.2f}): {advice}",
            "exploding_scale": scale > EXPLODING
            and f"margins multiply the gradient of positives by {scale:.0f}: {less}",
            # An attenuation of 1 keeps the gradient alive at saturation.
            "saturated_q": (saturated >= SATURATED_ROWS and margins.attenuation < 1.0)
            and f"q is above 0.99 in {saturated:.0%} of the rows, whose gradient vanishes: raise "
            f"{now('attenuation')}, to 1 by variant=decoupled, or method_kwargs.temperature",
            "silenced_positives": silenced > SILENCED_POSITIVES
            and f"the curve leaves {silenced:.0%} of the positives less than a tenth of their "
            f"gradient: raise {now('curvature')}",
        }
        return {name: text for name, text in problems.items() if text}
