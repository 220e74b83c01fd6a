"""Margins of contrastive learning: their settings, and functions of angle and probability.

References:
    - [0] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526. Equation numbers below are those of [0].
"""

import math
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from solo_margins.losses.checks import (
    BELOW_ONE,
    NON_NEGATIVE,
    POSITIVE,
    UP_TO_ONE,
    Range,
    require_choice,
    require_number,
    require_temperature,
)

RANGES = {
    "angular": Range("a number in [0, π]", high=math.pi),
    "subtractive": NON_NEGATIVE,
    "positive_scale": POSITIVE,
    "curvature": Range("a number > 0 or infinite", excluded=(0.0,)),
    "attenuation": UP_TO_ONE,
}
CHOICES = {
    "attenuation_type": ("I", "II"),
    "curve": ("power", "root", "superellipse"),
    "beyond_pi": ("cosine", "monotone"),
}


@dataclass(frozen=True)
class Margins:
    r"""All margin settings in one immutable object; the defaults switch every effect off.

    Two margins change the logits of positives, the other settings only scale gradients:

    .. math::
        z'_{il} = (\cos(\theta_{il} + m_1) - m_2) / \tau, \qquad
        w_{il} = s \cdot \mathrm{curve}(\theta_{il}) \cdot \frac{1}{1 - \alpha q_{il}}

    Attributes:
        angular: :math:`m_1` in radians, in [0, π]; added to the angle of positives (Eq. 7).
        subtractive: :math:`m_2` >= 0; subtracted from the cosine of positives (Eq. 7).
        positive_scale: :math:`s` > 0; multiplies the gradient of positives (Eq. 16, 17).
        curvature: :math:`c` > 0; weights positives by their angle (Eq. 18, 19); infinity is off.
        attenuation: :math:`\alpha` in [0, 1]; multiplies gradients by
            :math:`1/(1 - \alpha q_{il})` (Eq. 20, 21).
        attenuation_type: "I" for every gradient of the row (Eq. 20), "II" for the positive only
            (Eq. 21).
        curve: "power" for :math:`1 - |\theta/\pi|^c`, "root" for :math:`(1 - |\theta|/\pi)^{1/c}`,
            "superellipse" for :math:`(1 - |\theta/\pi|^c)^{1/c}`. The text of [0] fits all three;
            "power" is this project's reading.
        beyond_pi: what happens where :math:`\theta + m_1 > \pi`: "cosine" keeps the plain cosine,
            as published; "monotone" continues as :math:`-2 - \cos(\theta + m_1)`, which goes on
            falling. [0] says nothing here; the default is this project's reading.

    Raises:
        ValueError: a setting leaves its range; the message names setting, range and value.

    Example:
        >>> Margins(angular=0.1, subtractive=0.4).is_off
        False
        >>> Margins(attenuation=1.5)
        Traceback (most recent call last):
        ...
        ValueError: attenuation must be a number in [0, 1], got 1.5
    """

    angular: float = 0.0
    subtractive: float = 0.0
    positive_scale: float = 1.0
    curvature: float = math.inf
    attenuation: float = 0.0
    attenuation_type: str = "I"
    curve: str = "power"
    beyond_pi: str = "cosine"

    def __post_init__(self) -> None:
        for name, allowed in RANGES.items():
            number = require_number(name, getattr(self, name), allowed)
            object.__setattr__(self, name, number)
        for name, choices in CHOICES.items():
            require_choice(name, getattr(self, name), choices)

    @property
    def is_off(self) -> bool:
        """Whether these margins leave value and gradient of a loss as they are without margins."""
        return all(getattr(self, name) == getattr(Margins, name) for name in RANGES)

    @property
    def follow_angles(self) -> bool:
        """Whether they depend on the angles of positives, and not on their cosines alone."""
        return self.angular != 0.0 or not math.isinf(self.curvature)

    def similarity(self, cosine: Tensor, sine: Tensor | None) -> Tensor:
        r"""Return :math:`\cos(\theta + m_1) - m_2`, the similarity of positives with margins.

        Angles come in as cosine and sine, so that nothing is lost near 0 and π. Without an angular
        margin the sine may be None.
        """
        shifted = cosine
        if self.angular != 0.0:
            assert sine is not None
            shifted = self._shifted_cosine(cosine, sine)
        return shifted - self.subtractive if self.subtractive != 0.0 else shifted

    def _shifted_cosine(self, cosine: Tensor, sine: Tensor) -> Tensor:
        r"""Return :math:`\cos(\theta + m_1)`, continued beyond π as the settings say."""
        shifted = torch.sub(cosine * math.cos(self.angular), sine, alpha=math.sin(self.angular))
        if self.beyond_pi == "monotone":
            # sin(θ + m1) < 0 says θ + m1 > π, as both terms lie in [0, π].
            beyond = self._shifted_sine(cosine, sine) < 0.0
            shifted = torch.where(beyond, -2.0 - shifted, shifted)
        return shifted

    def slope(self, cosine: Tensor, sine: Tensor) -> Tensor:
        r"""Return :math:`\sin(\theta + m_1)`, minus the slope of ``similarity`` over the angle."""
        shifted = self._shifted_sine(cosine, sine)
        # The monotone continuation mirrors the cosine beyond π, and so the sign of its slope.
        return shifted.abs() if self.beyond_pi == "monotone" else shifted

    def angle_weight(self, angle: Tensor) -> Tensor:
        r"""Return :math:`s \cdot \mathrm{curve}(\theta)` for angles in [0, π].

        The engine applies the two factors apart.
        """
        return self.curve_of(angle) * self.positive_scale

    def curve_of(self, angle: Tensor) -> Tensor:
        r"""Return :math:`\mathrm{curve}(\theta)` for angles in [0, π]."""
        if math.isinf(self.curvature):
            return torch.ones_like(angle)
        # π in float32 is a little more than π.
        share = (angle / math.pi).clamp(max=1.0)
        curve = 1.0 - (share if self.curve == "root" else share.pow_(self.curvature))
        if self.curve != "power":
            # 1 / c overflows for the smallest c; the largest float has the same limit.
            curve.pow_(min(1.0 / self.curvature, 1e300))
        return curve

    def attenuated(self, complement: Tensor) -> Tensor:
        r"""Return :math:`(1 - q)/(1 - \alpha q)` where ``complement`` is :math:`1 - q`.

        Taking :math:`1 - q` instead of :math:`q` keeps the limit q→1 exact; at α = 1 the result is
        1 everywhere, which is Eq. 15.
        """
        if self.attenuation == 0.0:
            return complement
        if self.attenuation == 1.0:
            # A NaN stays a NaN.
            return torch.ones_like(complement) + 0.0 * complement
        return complement / (1.0 - self.attenuation + self.attenuation * complement)

    def attenuation_factor(self, complement: Tensor) -> Tensor:
        r"""Return :math:`1/(1 - \alpha q)` from :math:`1 - q`, cut off at 1/eps."""
        remainder = 1.0 - self.attenuation + self.attenuation * complement
        return 1.0 / remainder.clamp_min(torch.finfo(complement.dtype).eps)

    def _shifted_sine(self, cosine: Tensor, sine: Tensor) -> Tensor:
        return torch.add(sine * math.cos(self.angular), cosine, alpha=math.sin(self.angular))


FIELDS = tuple(setting.name for setting in fields(Margins))


@dataclass(frozen=True)
class ContrastSpec:
    r"""The settings of a contrastive loss: all but its vectors and which pairs are positives.

    Attributes:
        temperature: τ > 0, a number or a tensor of one number.
        margins: the margins.
        negatives_weight: β >= 0 of the generalised InfoNCE (Eq. 6); 1 is InfoNCE.
        tau_plus: the share of false negatives that is subtracted, in [0, 1); 0 for none.
        beta: how strongly hard negatives are weighted, >= 0; not the β of Eq. 6.
        gathers: whether several processes compare with each other's vectors.

    Raises:
        ValueError: a setting leaves its range; the message names setting, range and value.
    """

    temperature: Any  # a float; where torch traces the loss, a tensor stays a tensor
    margins: Margins = Margins()
    negatives_weight: float = 1.0
    tau_plus: float = 0.0
    beta: float = 0.0
    gathers: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "temperature", require_temperature(self.temperature))
        require_margins(self.margins)
        require_number("negatives_weight", self.negatives_weight, NON_NEGATIVE)
        require_number("tau_plus", self.tau_plus, BELOW_ONE)
        require_number("beta", self.beta, NON_NEGATIVE)


def require_margins(margins: Any) -> None:
    """Raise ``ValueError`` unless ``margins`` is a :class:`Margins`."""
    if not isinstance(margins, Margins):
        raise ValueError(f"margins must be a Margins object, got {margins!r}")


def require_margins_of_pairs(margins: Any) -> None:
    """Raise ``ValueError`` unless ``margins`` fit a loss of pairs alone, without negatives."""
    require_margins(margins)
    if margins.attenuation != 0.0:
        raise ValueError(
            "margins.attenuation must be 0 for a loss without negatives, "
            f"got {margins.attenuation!r}"
        )
