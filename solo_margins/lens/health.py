"""Warnings about a run's health, each once and with the setting to change."""

from __future__ import annotations

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

MARGINS = "method_kwargs.margins"


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
        advice = _less_margin(margins)
        problems = {}

        loss, chance = scalars["loss"], scalars["chance_loss"]
        # With a margin the loss at chance is higher than log N.
        if loss > NEAR_CHANCE * chance and not (margins.angular or margins.subtractive):
            images = f"{math.exp(chance):.0f}"
            problems["collapse_loss"] = (
                f"the loss is {loss:.2f}, that of guessing among {images} images "
                f"(log {images} = {chance:.2f}): "
                f"{advice or 'lower optimizer.lr or lengthen its warm-up'}"
            )
        advice = advice or "lower optimizer.lr"
        rank, highest = scalars["effective_rank"], self._highest_rank
        if rank < LOW_RANK or rank < LOST_RANK * highest:
            problems["collapse_rank"] = (
                f"the effective rank of the features is {rank:.1f}, after {highest:.1f} at its "
                f"highest: {advice}"
            )
        if scalars["angle_separation"] < MERGED:
            problems["collapse_angles"] = (
                "positive and negative angles have merged (a positive is closer with probability "
                f"{scalars['angle_separation']:.2f}): {advice}"
            )
        if scalars["effective_scale"] > EXPLODING:
            if margins.attenuation > 0.0 and margins.positive_scale <= EXPLODING:
                advice = f"lower {MARGINS}.attenuation (now {margins.attenuation:g})"
            problems["exploding_scale"] = (
                "margins multiply the gradient of positives by "
                f"{scalars['effective_scale']:.0f}: {advice}"
            )
        # An attenuation of 1 keeps the gradient alive at saturation.
        if scalars["saturated_q"] >= SATURATED_ROWS and margins.attenuation < 1.0:
            problems["saturated_q"] = (
                f"q is above 0.99 in {scalars['saturated_q']:.0%} of the rows, whose gradient "
                f"vanishes: raise {MARGINS}.attenuation (now {margins.attenuation:g}) or "
                "method_kwargs.temperature"
            )
        if scalars["silenced_positives"] > SILENCED_POSITIVES:
            problems["silenced_positives"] = (
                f"the curve leaves {scalars['silenced_positives']:.0%} of the positives less than "
                f"a tenth of their gradient: raise {MARGINS}.curvature (now {margins.curvature:g})"
            )
        return problems


def _less_margin(margins: Margins) -> str | None:
    """Return advice to lower a margin, the most likely cause first."""
    harmless = {"positive_scale": 1.0, "attenuation": 0.9, "angular": 0.0, "subtractive": 0.0}
    for name, limit in harmless.items():
        value = getattr(margins, name)
        if value > limit:
            schedule = " or ramp it up by a schedule" if name == "positive_scale" else ""
            return f"lower {MARGINS}.{name} (now {value:g}){schedule}"
    return None
