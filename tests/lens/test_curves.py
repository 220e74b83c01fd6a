"""Curves against the paper's equations."""

import math

import pytest
import torch
from margin_names import named
from naive_losses import naive_logits, naive_weight

from solo_margins.lens import curves
from solo_margins.losses import Margins
from solo_margins.losses.margins import ContrastSpec


def focal(angle, q):
    return angle + 3 * (1 - q) ** 2


PLAIN = Margins()
MARGINS = [
    PLAIN,
    Margins(angular=0.5),
    Margins(angular=-0.5),
    Margins(angular=-math.pi / 2, beyond_pi="monotone"),
    Margins(subtractive=0.4),
    Margins(angular=0.3, subtractive=0.2, positive_scale=3.0, curvature=1.5),
    Margins(attenuation=0.8, attenuation_type="II", angular=0.2),
    Margins(curvature=0.5, curve="root", angular=1.0, beyond_pi="monotone"),
    Margins(curvature=2.5, curve="superellipse"),
    Margins(attenuation=0.5, angular=0.2, curvature=1.0, scaling=focal),
]
TAU = 0.2


def naive_row(angle, q, margins):
    """Return q' (Eq. 7 to 9) and the positive's gradient (Eq. 11, 16 to 21), elementwise.

    One negative gives the positive the probability q without margins.
    """
    leaf = angle.clone().requires_grad_()
    shifted = naive_logits(leaf, torch.ones_like(angle), TAU, margins)
    (slope,) = torch.autograd.grad(shifted.sum(), leaf)
    negative = angle.cos() / TAU + math.log((1 - q) / q)
    changed = torch.sigmoid(shifted.detach() - negative)
    weight = naive_weight(angle, changed, margins) / (1 - margins.attenuation * changed)
    return changed, (1 - changed) * weight * -slope


@pytest.mark.parametrize("margins", MARGINS, ids=named)
@pytest.mark.parametrize("q", [0.1, 0.5, 0.9])
def test_curves_follow_the_equations(margins, q):
    spec = ContrastSpec(TAU, margins)
    angles = curves.ANGLES[10:-1:10]
    changed, gradient = naive_row(angles, q, margins)
    _, plain = naive_row(angles, q, PLAIN)
    expected = {
        "gradient": gradient.abs(),
        "all factors": (gradient / plain).abs(),
        "weight": naive_weight(angles, changed, margins),
    }
    found = {
        "gradient": curves.positive_gradient(spec, angles, q),
        "all factors": curves.total_ratio(spec, angles, q),
        "weight": curves.positive_weight(spec, angles, q),
    }
    for name, values in expected.items():
        torch.testing.assert_close(found[name], values, msg=name)
    # Eq. 12, 14 and 20: negatives share what the positive leaves, with margins as without.
    positive, negative = curves.probability_ratios(
        spec, angles, torch.tensor(q, dtype=torch.float64)
    )
    attenuation = 1 / (1 - margins.attenuation * changed)
    torch.testing.assert_close(positive, attenuation * (1 - changed) / (1 - q))
    by_row = attenuation if margins.attenuation_type == "I" else 1.0
    torch.testing.assert_close(negative, by_row * (1 - changed) / (1 - q))
    # Whatever the sign of the slope is, it is the rest.
    slope = curves.slope_ratio(margins, angles).abs()
    torch.testing.assert_close((slope * found["weight"] * positive), expected["all factors"])


@pytest.mark.parametrize("margins", [PLAIN, MARGINS[5]], ids=named)
def test_without_negatives_the_probability_counts_for_nothing(margins):
    spec = ContrastSpec(1.0, margins, negatives_weight=0.0)
    angles = curves.ANGLES[10:-1:10]
    expected = (angles + margins.angular).sin().abs() * naive_weight(angles, 0.0, margins)
    for q in (0.1, 0.9):
        torch.testing.assert_close(curves.positive_gradient(spec, angles, q), expected)
