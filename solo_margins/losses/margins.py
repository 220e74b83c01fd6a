"""Margins of contrastive learning: their settings, and functions of angle and probability.

References:
    - [0] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526. Equation numbers below are those of [0].
    - [1] Meta-optimized Angular Margin Contrastive Framework for Video-Language Representation
      Learning (MAMA), 2024, https://arxiv.org/abs/2407.03788
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from solo_margins.losses.checks import (
    BELOW_ONE,
    NON_NEGATIVE,
    POSITIVE,
    UP_TO_ONE,
    WIDTH,
    Range,
    described,
    is_readable,
    require_choice,
    require_number,
    require_number_or_rows,
    require_temperature,
)

RANGES = {
    "angular": Range("a number in [-π/2, π]", low=-math.pi / 2, high=math.pi),
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
COSINE = Range("a number in [-1, 1]", low=-1.0, high=1.0)
# What a configuration can write: all settings but ``scaling``, which is a function.
FIELDS = (*RANGES, *CHOICES)
# Settings that may have a value of its own for each row.
BY_ROW = ("angular", "subtractive", "positive_scale")

Scaling = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Margins:
    r"""All margin settings in one immutable object; the defaults switch every effect off.

    Two margins change the logits of positives, the other settings only scale gradients:

    $$
    z'_{il} = (\cos(\theta_{il} + m_1) - m_2) / \tau, \qquad
    w_{il} = s \cdot \mathrm{curve}(\theta_{il}) \cdot \frac{1}{1 - \alpha q_{il}}
    \cdot \mathrm{scaling}(\theta_{il}, q_{il})
    $$

    ``angular``, ``subtractive`` and ``positive_scale`` may also be tensors (N,) without gradient,
    one number for each row that is compared: for each query, for each row of SimCLR's ``z``, for
    each prediction of BYOL. In several processes each one passes the numbers of its own rows.

    Attributes:
        angular: $m_1$ in radians, in [-π/2, π]; added to the angle of positives (Eq. 7).
            Where it is negative the pull of a positive ends at the angle $-m_1$, as in [1].
        subtractive: $m_2$ >= 0; subtracted from the cosine of positives (Eq. 7).
        positive_scale: $s$ > 0; multiplies the gradient of positives (Eq. 16, 17).
        curvature: $c$ > 0; weights positives by their angle (Eq. 18, 19); infinity is off.
        attenuation: $\alpha$ in [0, 1]; multiplies gradients by
            $1/(1 - \alpha q_{il})$ (Eq. 20, 21).
        attenuation_type: "I" for every gradient of the row (Eq. 20), "II" for the positive only
            (Eq. 21).
        curve: "power" for $1 - |\theta/\pi|^c$, "root" for $(1 - |\theta|/\pi)^{1/c}$,
            "superellipse" for $(1 - |\theta/\pi|^c)^{1/c}$. The text of [0] fits all three;
            "power" is this project's reading.
        beyond_pi: what happens where $\theta + m_1$ leaves [0, π]: "cosine" keeps the plain
            cosine, as published; it pushes apart a positive beyond π, or nearer than
            $-m_1$. "monotone" never does: above π it continues as
            $-2 - \cos(\theta + m_1)$, which goes on falling, and below 0 as the constant 1,
            where the positive has no gradient. [0] says nothing here; the default is this
            project's reading.
        scaling: a function of one's own, ``weight(angle, q) -> Tensor``, whose result multiplies
            the gradient of positives, and of them alone, together with the other factors; the
            defaults of those are 1, so that it can replace them. ``angle`` holds angles of
            positives in [0, π] and ``q`` the probabilities in [0, 1] of the attenuation: of
            several positives their summed probability, without negatives (BYOL, SimSiam) 0, as
            nothing competes there. Both have one shape and no gradient; the result must be finite
            and fit that shape. The function may be called for a part of the rows at a time, and
            with entries that are not positives, whose results are dropped: it must compute each
            entry from that entry alone.

    Raises:
        ValueError: a setting leaves its range; the message names setting, range and value.

    Examples:
        >>> Margins(angular=0.1, subtractive=0.4).is_off
        False
        >>> Margins(scaling=lambda angle, q: (1 - q) ** 2).is_off
        False
        >>> Margins(angular=torch.tensor([0.1, 0.2])).is_off
        False
        >>> Margins(attenuation=1.5)
        Traceback (most recent call last):
        ...
        ValueError: attenuation must be a number in [0, 1], got 1.5
    """

    angular: float | Tensor = 0.0
    subtractive: float | Tensor = 0.0
    positive_scale: float | Tensor = 1.0
    curvature: float = math.inf
    attenuation: float = 0.0
    attenuation_type: str = "I"
    curve: str = "power"
    beyond_pi: str = "cosine"
    scaling: Scaling | None = None

    def __post_init__(self) -> None:
        for name, allowed in RANGES.items():
            require = require_number_or_rows if name in BY_ROW else require_number
            object.__setattr__(self, name, require(name, getattr(self, name), allowed))
        for name, choices in CHOICES.items():
            require_choice(name, getattr(self, name), choices)
        if self.scaling is not None and not callable(self.scaling):
            raise ValueError(
                "scaling must be None or a function of angles and probabilities, "
                f"got {self.scaling!r}"
            )

    def __eq__(self, other: object) -> bool:
        """Return whether all settings are the same; tensors are compared number by number."""
        if not isinstance(other, Margins):
            return NotImplemented
        names = (*FIELDS, "scaling")
        return all(_is_same(getattr(self, name), getattr(other, name)) for name in names)

    def __hash__(self) -> int:
        """Return a hash that equal margins have in common; of tensors it knows the length."""
        values = (getattr(self, name) for name in (*FIELDS, "scaling"))
        return hash(tuple(tuple(v.shape) if isinstance(v, Tensor) else v for v in values))

    @property
    def is_off(self) -> bool:
        """Whether value and gradient of a loss are surely those without margins.

        They are not where a setting is a tensor or a function, whatever is in it.
        """
        if self.scaling is not None:
            return False
        return not any(_is_on(getattr(self, name), getattr(Margins, name)) for name in RANGES)

    @property
    def follow_angles(self) -> bool:
        """Whether they depend on the angles of positives, and not on their cosines alone."""
        has_curve = not math.isinf(self.curvature)
        return has_curve or self.scaling is not None or self.has_angular

    @property
    def common_scale(self) -> float:
        """The scale of the positives of all rows, 1 where each row has its own."""
        return 1.0 if isinstance(self.positive_scale, Tensor) else self.positive_scale

    @property
    def has_angular(self) -> bool:
        """Whether there is an angular margin; one of each row counts, whatever is in it."""
        return _is_on(self.angular, 0.0)

    def of_rows(self, part: slice) -> "Margins":
        """Return the margins of some of the rows."""
        changed: dict[str, Any] = {}
        for name in BY_ROW:
            value = getattr(self, name)
            if isinstance(value, Tensor):
                changed[name] = value[part]
        return replace(self, **changed) if changed else self

    def similarity(self, cosine: Tensor, sine: Tensor | None) -> Tensor:
        r"""Return $\cos(\theta + m_1) - m_2$, the similarity of positives with margins.

        Angles come in as cosine and sine, so that nothing is lost near 0 and π. Without an angular
        margin the sine may be None. The first axis is that of the rows, here and below.
        """
        shifted = cosine
        if self.has_angular:
            assert sine is not None
            shifted = self._continued_cosine(cosine, sine)
        if not _is_on(self.subtractive, 0.0):
            return shifted
        return shifted - by_row(self.subtractive, cosine)

    def slope(self, cosine: Tensor, sine: Tensor) -> Tensor:
        r"""Return $\sin(\theta + m_1)$, minus the slope of ``similarity`` over the angle."""
        shifted = self._shifted_sine(cosine, sine)
        if self.beyond_pi == "cosine":
            return shifted
        # Above π the continuation mirrors the cosine, and so the sign of its slope.
        if isinstance(self.angular, Tensor):
            is_negative = column(self.angular, cosine) < 0.0
            return torch.where(is_negative, shifted.clamp_min(0.0), shifted.abs())
        return shifted.clamp_min(0.0) if self.angular < 0.0 else shifted.abs()

    def _continued_cosine(self, cosine: Tensor, sine: Tensor) -> Tensor:
        r"""Return $\cos(\theta + m_1)$, continued outside of [0, π] as the settings say."""
        shifted = self._shifted_cosine(cosine, sine)
        if self.beyond_pi == "cosine":
            return shifted
        # sin(θ + m1) < 0 says that θ + m1 is above π where m1 > 0, and below 0 where m1 < 0.
        is_outside = self._shifted_sine(cosine, sine) < 0.0
        continued: Tensor | float
        if isinstance(self.angular, Tensor):
            continued = torch.where(column(self.angular, cosine) < 0.0, 1.0, -2.0 - shifted)
        elif self.angular < 0.0:
            continued = 1.0
        else:
            continued = -2.0 - shifted
        return torch.where(is_outside, continued, shifted)

    def _shifted_cosine(self, cosine: Tensor, sine: Tensor) -> Tensor:
        if isinstance(self.angular, Tensor):
            angular = column(self.angular, cosine)
            return cosine * angular.cos() - sine * angular.sin()
        return torch.sub(cosine * math.cos(self.angular), sine, alpha=math.sin(self.angular))

    def _shifted_sine(self, cosine: Tensor, sine: Tensor) -> Tensor:
        if isinstance(self.angular, Tensor):
            angular = column(self.angular, cosine)
            return sine * angular.cos() + cosine * angular.sin()
        return torch.add(sine * math.cos(self.angular), cosine, alpha=math.sin(self.angular))

    def angle_weight(self, angle: Tensor) -> Tensor:
        r"""Return $s \cdot \mathrm{curve}(\theta)$ for angles in [0, π].

        The engine applies the two factors apart.
        """
        return self.curve_of(angle) * by_row(self.positive_scale, angle)

    def own_weight(self, angle: Tensor, q: Tensor, is_positive: Tensor | None = None) -> Tensor:
        """Return ``scaling`` of angles and probabilities, 1 where there is no positive.

        Args:
            angle: of positives, in [0, π].
            q: their probabilities, of a shape that fits the angles.
            is_positive: which entries are positives; None for all.

        Raises:
            ValueError: the result is not a tensor, does not fit the angles, or is not finite where
                they are, as far as numbers can be read without waiting for a device.
        """
        assert self.scaling is not None
        angle = angle.detach()
        # A copy: a function that writes into its arguments must not change what others read.
        weight = self.scaling(angle.clone(), q.detach().expand_as(angle).clone())
        if not isinstance(weight, Tensor) or weight.is_complex() or not _fits(weight, angle):
            raise ValueError(
                "scaling must return a tensor of real numbers that fits the shape "
                f"{tuple(angle.shape)} of its angles, on {angle.device}, got {described(weight)}"
            )
        weight = weight.detach().to(angle.dtype).expand_as(angle)
        if is_positive is not None:
            weight = torch.where(is_positive, weight, 1.0)
        if is_readable(weight):
            is_wrong = ~weight.isfinite() & angle.isfinite() & q.isfinite()
            if is_wrong.any().tolist():
                raise ValueError("scaling must return finite numbers, got one that is not")
        return weight

    def curve_of(self, angle: Tensor) -> Tensor:
        r"""Return $\mathrm{curve}(\theta)$ for angles in [0, π]."""
        if math.isinf(self.curvature):
            return torch.ones_like(angle)
        # π in float32 is a little more than π.
        share = (angle / math.pi).clamp(max=1.0)
        curve = 1.0 - (share if self.curve == "root" else share.pow_(self.curvature))
        if self.curve != "power":
            # 1 / c overflows for the smallest c; the largest float has the same limit.
            curve.pow_(min(1.0 / self.curvature, 1e300))
        return curve

    def attenuated(self, gap: Tensor) -> Tensor:
        r"""Return $(1 - q)/(1 - \alpha q)$, where ``gap`` is $\log((1 - q)/q)$.

        $$
        \frac{1 - q}{1 - \alpha q} = \sigma(\mathrm{gap} - \log(1 - \alpha))
        $$

        which is exact in the limit q→1; at α = 1 the result is 1 everywhere, which is Eq. 15.
        """
        if self.attenuation == 0.0:
            return torch.sigmoid(gap)
        if self.attenuation == 1.0:
            # A NaN stays a NaN.
            return torch.sigmoid(gap) * 0.0 + 1.0
        return torch.sigmoid(gap - math.log1p(-self.attenuation))

    def attenuation_factor(self, complement: Tensor) -> Tensor:
        r"""Return $1/(1 - \alpha q)$ from $1 - q$, cut off at 1/eps."""
        remainder = 1.0 - self.attenuation + self.attenuation * complement
        return 1.0 / remainder.clamp_min(torch.finfo(complement.dtype).eps)


def _is_on(value: float | Tensor, off: float) -> bool:
    """Return whether a setting may have an effect."""
    return isinstance(value, Tensor) or value != off


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two settings are the same, number by number where they are tensors."""
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return type(one) is type(other) and one == other
    if (one.shape, one.dtype, one.device) != (other.shape, other.dtype, other.device):
        return False
    return torch.equal(one, other)


def _fits(weight: Tensor, angle: Tensor) -> bool:
    """Return whether a tensor can be expanded to the shape of angles on their device."""
    if weight.device != angle.device or weight.dim() > angle.dim():
        return False
    pairs = zip(reversed(weight.shape), reversed(angle.shape), strict=False)
    return all(length in (1, wanted) for length, wanted in pairs)


def by_row(value: float | Tensor, like: Tensor) -> float | Tensor:
    """Return a setting as it multiplies a tensor whose first axis is that of the rows."""
    return column(value, like) if isinstance(value, Tensor) else value


def column(values: Tensor, like: Tensor) -> Tensor:
    """Return one number for each row with as many axes as a tensor has, and in its dtype."""
    return values.to(like.dtype).reshape(-1, *(1 for _ in like.shape[1:]))


@dataclass(frozen=True)
class ContrastSpec:
    r"""The settings of a contrastive loss: all but its vectors and which pairs are positives.

    Attributes:
        temperature: τ > 0, a number or a tensor of one number.
        margins: the margins.
        negatives_weight: β >= 0 of the generalised InfoNCE (Eq. 6); 1 is InfoNCE.
        tau_plus: the share of false negatives that is subtracted, in [0, 1); 0 for none.
        beta: how strongly hard negatives are weighted, >= 0; not the β of Eq. 6.
        mean: the cosine μ in [-1, 1] at which negatives weigh most; None weights none.
        width: σ of these weights, in [0.001, 1000].
        gathers: whether several processes compare with each other's vectors.

    Raises:
        ValueError: a setting leaves its range; the message names setting, range and value.
    """

    temperature: Any  # a float; where torch traces the loss, a tensor stays a tensor
    margins: Margins = Margins()
    negatives_weight: float = 1.0
    tau_plus: float = 0.0
    beta: float = 0.0
    mean: float | None = None
    width: float = 1.0
    gathers: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "temperature", require_temperature(self.temperature))
        require_margins(self.margins)
        require_number("negatives_weight", self.negatives_weight, NON_NEGATIVE)
        require_number("tau_plus", self.tau_plus, BELOW_ONE)
        require_number("beta", self.beta, NON_NEGATIVE)
        require_number("width", self.width, WIDTH)
        if self.mean is not None:
            require_number("mean", self.mean, COSINE)
            if self.beta != 0.0:
                raise ValueError(
                    "beta must be 0 where mean is set, as both weight negatives, "
                    f"got {self.beta!r} and mean {self.mean!r}"
                )

    @property
    def weights_negatives(self) -> bool:
        """Whether some negatives of a row count more than others."""
        return self.beta != 0.0 or self.mean is not None

    def log_gaussian(self, cosine: Tensor) -> Tensor:
        r"""Return $-(\cos\theta - \mu)^2 / 2 \sigma^2$ of negatives, without gradient."""
        assert self.mean is not None
        return cosine.detach().sub(self.mean).square_().mul_(-0.5 / self.width**2)


def require_margins(margins: Any) -> None:
    """Raise ``ValueError`` unless ``margins`` is a `Margins`."""
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


def require_margins_of_rows(margins: Margins, rows: Tensor) -> None:
    """Raise ``ValueError`` unless margins that differ by row have one number for each row."""
    for name in BY_ROW:
        value = getattr(margins, name)
        if not isinstance(value, Tensor):
            continue
        if (value.shape, value.device) != (rows.shape[:1], rows.device):
            raise ValueError(
                f"margins.{name} must hold one number for each of the {rows.shape[0]} rows on "
                f"{rows.device}, got {described(value)}"
            )
