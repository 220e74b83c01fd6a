"""Signs of trouble: each is told once, in one line, with what to change and in which direction."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from solo_margins.lens.measures import Measured
from solo_margins.losses import Margins

PATIENCE = 5
"""Observations in a row that must show a sign of collapse: training begins near some of them."""

NEAR_CHANCE = 0.98
"""Share of log N that a loss must be above to count as chance."""
LOW_RANK = 1.5
LOST_RANK = 0.25
"""Share of its highest value below which an effective rank has fallen."""
MERGED = 0.55
"""Probability that a positive is closer than a negative; 0.5 is a coin's."""
EXPLODING = 50.0
"""More than twice the largest scale that the margins paper recommends (20)."""
SATURATED_ROWS = 0.9
SILENCED_POSITIVES = 0.5

COLLAPSE = ("collapse_loss", "collapse_rank", "collapse_angles")
"""Signs after which ``lens.on_collapse=stop`` ends a training."""

Check = Callable[[Measured], "str | None"]


@dataclass
class Signs:
    """Looks at one observation after the other and says what is new.

    Args:
        grace_epochs: what looks like a collapse before is how training begins.
        prefix: where the margins are in the user's settings.
    """

    grace_epochs: float = 0.0
    prefix: str = "method_kwargs"
    _told: set[str] = field(default_factory=set)
    _in_a_row: dict[str, int] = field(default_factory=dict)
    _highest_rank: float = 0.0

    def look(self, measured: Measured, epoch: float = math.inf) -> Iterator[tuple[str, str]]:
        """Yield name and text of every sign that shows for the first time.

        Args:
            measured: of the batch.
            epoch: how far training is.
        """
        checks: dict[str, tuple[Check, int]] = {
            "collapse_loss": (self._chance, PATIENCE),
            "collapse_rank": (self._rank, PATIENCE),
            "collapse_angles": (self._merged, PATIENCE),
            "exploding_scale": (self._exploding, 1),
            "saturated_q": (self._saturated, 2),
            "silenced_positives": (self._silenced, 1),
        }
        for name, (check, patience) in checks.items():
            text = check(measured)
            if name in COLLAPSE and epoch < self.grace_epochs:
                text = None
            self._in_a_row[name] = self._in_a_row.get(name, 0) + 1 if text else 0
            if text and self._in_a_row[name] >= patience and name not in self._told:
                self._told.add(name)
                yield name, text

    def _setting(self, field_name: str) -> str:
        return f"{self.prefix}.margins.{field_name}"

    def _chance(self, measured: Measured) -> str | None:
        loss, candidates = measured.scalars.get("loss"), measured.candidates
        margins = measured.margins or Margins()
        if loss is None or candidates is None or candidates < 2:
            return None
        # A margin raises the loss of chance by what it takes from the positive's logit.
        chance = math.log(candidates)
        if margins.angular or margins.subtractive or not loss > NEAR_CHANCE * chance:
            return None
        advice = self._less_margin(margins) or "lower optimizer.lr or lengthen its warm-up"
        return (
            f"the loss is {loss:.2f}, that of guessing among {candidates} images "
            f"(log {candidates} = {chance:.2f}): {advice}"
        )

    def _rank(self, measured: Measured) -> str | None:
        rank = measured.scalars.get("effective_rank")
        if rank is None:
            return None
        self._highest_rank = max(self._highest_rank, rank)
        if rank >= LOW_RANK and rank >= LOST_RANK * self._highest_rank:
            return None
        advice = self._less_margin(measured.margins) or "lower optimizer.lr"
        return (
            f"the effective rank of the features is {rank:.1f}, after {self._highest_rank:.1f} at "
            f"its highest: {advice}"
        )

    def _merged(self, measured: Measured) -> str | None:
        separated = measured.scalars.get("angle_separation")
        if separated is None or separated >= MERGED:
            return None
        advice = self._less_margin(measured.margins) or "lower optimizer.lr"
        return (
            "positive and negative angles have merged (a positive is closer with probability "
            f"{separated:.2f}): {advice}"
        )

    def _less_margin(self, margins: Margins | None) -> str | None:
        """Return which margin to lower, the most suspicious first."""
        if margins is None:
            return None
        if margins.positive_scale > 1.0:
            name = self._setting("positive_scale")
            return f"lower {name} (now {margins.positive_scale:g}) or ramp it up by a schedule"
        if margins.attenuation > 0.9:
            return f"lower {self._setting('attenuation')} (now {margins.attenuation:g})"
        if margins.angular > 0.0:
            return f"lower {self._setting('angular')} (now {margins.angular:g})"
        if margins.subtractive > 0.0:
            return f"lower {self._setting('subtractive')} (now {margins.subtractive:g})"
        return None

    def _exploding(self, measured: Measured) -> str | None:
        scale = measured.scalars.get("effective_scale")
        if scale is None or not scale > EXPLODING:
            return None
        margins = measured.margins or Margins()
        advice = (
            f"lower {self._setting('attenuation')} (now {margins.attenuation:g})"
            if margins.attenuation > 0.0 and margins.positive_scale <= EXPLODING
            else self._less_margin(margins)
        )
        return (
            f"margins multiply the gradient of positives by {scale:.0f}: "
            f"{advice or 'lower optimizer.lr'}"
        )

    def _saturated(self, measured: Measured) -> str | None:
        share = measured.scalars.get("saturated_q")
        margins = measured.margins or Margins()
        # Attenuation of 1 undoes what saturation does to the gradient.
        if share is None or share < SATURATED_ROWS or margins.attenuation == 1.0:
            return None
        return (
            f"q is above 0.99 in {share:.0%} of the rows, whose gradient vanishes: raise "
            f"{self._setting('attenuation')} (now {margins.attenuation:g}) or "
            f"{self.prefix}.temperature (now {measured.temperature:g})"
        )

    def _silenced(self, measured: Measured) -> str | None:
        share = measured.scalars.get("silenced_positives")
        if share is None or not share > SILENCED_POSITIVES or measured.margins is None:
            return None
        return (
            f"the curve leaves {share:.0%} of the positives less than a tenth of their gradient: "
            f"raise {self._setting('curvature')} (now {measured.margins.curvature:g})"
        )
