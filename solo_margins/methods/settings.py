"""Settings of the margin methods besides the margins themselves."""

from dataclasses import dataclass

from solo_margins.losses.checks import require_choice, require_number
from solo_margins.losses.polarization import require_band


@dataclass(frozen=True)
class Polarization:
    """How strongly, and where, pairwise distances are driven out of a band; off at weight 0.

    The paper gives no values: this band did best in a small sweep on handwritten digits.

    Args:
        weight: λ >= 0.
        lower: δ⁺, where the band begins; 0 < lower < upper.
        upper: δ⁻, where the band ends; lower < upper < 1.
    """

    weight: float = 0.0
    lower: float = 0.2
    upper: float = 0.4

    def __post_init__(self) -> None:
        require_number("weight", self.weight, "a number >= 0", low=0.0)
        require_band(self.lower, self.upper)


@dataclass(frozen=True)
class Negatives:
    """What is summed over the negatives of a row.

    Args:
        kind: ``"standard"``, ``"debiased"`` or ``"hard"``.
        tau_plus: probability that a negative is of the same class, in [0, 1); not for standard.
        beta: concentration on hard negatives, >= 0; for hard alone.
    """

    kind: str = "standard"
    tau_plus: float = 0.1
    beta: float = 1.0

    def __post_init__(self) -> None:
        require_choice("kind", self.kind, ("standard", "debiased", "hard"))
        require_number(
            "tau_plus", self.tau_plus, "a number in [0, 1)", low=0.0, high=1.0, open_high=True
        )
        require_number("beta", self.beta, "a number >= 0", low=0.0)
