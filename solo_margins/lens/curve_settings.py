"""``key=value`` arguments of the figure of curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from solo_margins.lens import curves
from solo_margins.lens.files import output_path
from solo_margins.losses import Margins
from solo_margins.losses.checks import require_number, require_temperature
from solo_margins.losses.margins import FIELDS

ENDINGS = (".png", ".pdf", ".svg")
KEYS = (*(f"margins.{name}" for name in FIELDS), "temperature", "q", "degrees", "output")


@dataclass(frozen=True)
class CurveSettings:
    """What to draw, and where the slices through angle and probability are.

    Args:
        margins: the margins.
        temperature: τ > 0.
        q: probability of the positive, without margins, in plots against the angle.
        degrees: angle of the positive in plots against the probability, in [0, 180].
        output: the picture; .png, .pdf or .svg.

    Raises:
        ValueError: a setting leaves its range; the message is one sentence.
    """

    margins: Margins = field(default_factory=Margins)
    temperature: float = curves.TEMPERATURE
    q: float = 0.5
    degrees: float = 60.0
    output: Path = Path("lens_curves.png")

    def __post_init__(self) -> None:
        require_temperature(self.temperature)
        require_number("q", self.q, "a number in [0, 1]", low=0.0, high=1.0)
        require_number("degrees", self.degrees, "a number in [0, 180]", low=0.0, high=180.0)


def parse(arguments: Sequence[str]) -> CurveSettings:
    """Return the settings from ``key=value`` arguments.

    ``margins.<field>`` may be written ``method_kwargs.margins.<field>``, as in a configuration.

    Raises:
        ValueError: an argument is unknown or leaves its range; the message is one sentence.

    Example:
        >>> parse(["margins.curvature=.inf", "q=0.25"]).q
        0.25
        >>> parse(["margins.angular=4"])
        Traceback (most recent call last):
        ...
        ValueError: margins.angular must be a number in [0, π], got 4.0
    """
    of_margins: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for argument in arguments:
        key, is_setting, text = argument.partition("=")
        if key.startswith("method_kwargs.margins."):
            key = key.removeprefix("method_kwargs.")
        if not is_setting or key not in KEYS:
            raise ValueError(
                f"{argument!r} is no setting of the form key=value with one of the keys "
                f"{', '.join(KEYS)}."
            )
        if key == "output":
            others[key] = output_path(text, ENDINGS)
        elif key.startswith("margins."):
            name = key.removeprefix("margins.")
            is_word = isinstance(getattr(Margins, name), str)
            of_margins[name] = text if is_word else _number_or_text(text)
        else:
            others[key] = _number_or_text(text)
    try:
        margins = Margins(**of_margins)
    except ValueError as error:
        raise ValueError(f"margins.{error}") from None
    return CurveSettings(margins=margins, **others)


def _number_or_text(text: str) -> float | str:
    try:
        return float("inf" if text == ".inf" else text)
    except ValueError:
        return text
