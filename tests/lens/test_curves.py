"""Curves against the paper's equations and the gradients of the losses."""

import math

import pytest
import torch

from solo_margins.lens import curves
from solo_margins.losses import Margins
from solo_margins.losses.byol import byol_curv_loss_func
from solo_margins.losses.generalized import generalized_info_nce_loss_func
from solo_margins.losses.margins import ContrastSpec

MARGINS = [
    Margins(),
    Margins(angular=0.5),
    Margins(subtractive=0.4),
    Margins(angular=0.3, subtractive=0.2, positive_scale=3.0, curvature=1.5),
    Margins(attenuation=0.5),
    Margins(attenuation=0.8, attenuation_type="II", angular=0.2),
    Margins(curvature=0.5, curve="root", angular=1.0, beyond_pi="monotone"),
    Margins(curvature=2.5, curve="superellipse"),
]
TAU = 0.2


def naive_curve(angle, margins):
    """Eq. 18."""
    if math.isinf(margins.curvature):
        return 1.0
    if margins.curve != "root":
        power = 1 - (angle / math.pi) ** margins.curvature
        return power if margins.curve == "power" else power ** (1 / margins.curvature)
    return (1 - angle / math.pi) ** (1 / margins.curvature)


def naive_probability(angle, q, margins):
    """The positive's q', Eq. 7 to 9, from q and one negative that gives it."""
    plain = math.exp(math.cos(angle) / TAU)
    negative = plain * (1 - q) / q
    shifted = math.cos(angle + margins.angular)
    if margins.beyond_pi == "monotone" and angle + margins.angular > math.pi:
        shifted = -2 - shifted
    positive = math.exp((shifted - margins.subtractive) / TAU)
    return positive / (positive + negative)


def naive_gradient(angle, q, margins):
    """Eq. 11, times the weights of Eq. 19 to 21."""
    changed = naive_probability(angle, q, margins)
    attenuation = 1 / (1 - margins.attenuation * changed)
    weight = margins.positive_scale * naive_curve(angle, margins) * attenuation
    return abs(weight * (1 - changed) * math.sin(angle + margins.angular) / TAU)


def radians(degrees):
    return torch.tensor(math.radians(degrees), dtype=torch.float64)


def close(found, expected):
    torch.testing.assert_close(
        found, torch.as_tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("margins", MARGINS, ids=repr)
def test_factors_follow_equations_12_14_and_20(margins):
    spec = ContrastSpec(TAU, margins)
    probabilities = curves.PROBABILITIES[18:-1:18]
    ratios = curves.probability_ratios(spec, radians(60.0), probabilities)
    for q, positive, negative in zip(probabilities.tolist(), *ratios, strict=True):
        changed = naive_probability(math.radians(60.0), q, margins)
        attenuation = 1 / (1 - margins.attenuation * changed)
        # Negatives share what the positive leaves, with margins as without.
        for_negatives = attenuation if margins.attenuation_type == "I" else 1.0
        ratio = (1 - changed) / (1 - q)
        assert positive.item() == pytest.approx(attenuation * ratio, rel=1e-9)
        assert negative.item() == pytest.approx(for_negatives * ratio, rel=1e-9)
    angles = curves.ANGLES[30:-1:30]
    slope = curves.slope_ratio(margins, angles)
    total = curves.total_ratio(spec, angles, 0.3)
    for angle, found, whole in zip(angles.tolist(), slope.tolist(), total.tolist(), strict=True):
        expected = math.sin(angle + margins.angular)
        if margins.beyond_pi == "monotone":
            expected = abs(expected)
        assert found == pytest.approx(expected / math.sin(angle), abs=1e-9)
        plain = naive_gradient(angle, 0.3, Margins())
        assert whole == pytest.approx(naive_gradient(angle, 0.3, margins) / plain, rel=1e-9)


def query_and_keys(angle, negative=1.9):
    """Two queries in the plane of their keys: each key is the other's negative."""
    query = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    turned = torch.tensor(
        [
            [math.cos(angle), math.sin(angle)],
            [math.cos(negative), math.sin(negative)],
        ],
        dtype=torch.float64,
    )
    return query.requires_grad_(), turned


@pytest.mark.parametrize("margins", MARGINS, ids=repr)
@pytest.mark.parametrize("degrees", [5.0, 60.0, 130.0])
def test_gradients_are_those_of_the_loss(margins, degrees):
    """The pull of the first row along the circle is the curves' positive plus its negative."""
    angle, other = math.radians(degrees), 1.9
    query, keys = query_and_keys(angle, other)
    generalized_info_nce_loss_func(query, keys, TAU, margins=margins).backward()
    # Turning the query by t makes both angles smaller by t; the loss is a mean over two rows.
    by_turning = 2 * query.grad[0, 1].item()
    plain = math.exp(math.cos(angle) / TAU)
    negative = math.exp(math.cos(other) / TAU)
    q = torch.tensor(plain / (plain + negative), dtype=torch.float64)
    theta = torch.tensor(angle, dtype=torch.float64)
    row = curves.row_terms(ContrastSpec(TAU, margins), theta, q)
    pulled = curves.positive_gradient(ContrastSpec(TAU, margins), theta, q).item()
    if math.sin(angle + margins.angular) < 0 and margins.beyond_pi == "cosine":
        pulled = -pulled
    pushed = row.to_negatives.item() * math.sin(other) / TAU
    assert by_turning == pytest.approx(pushed - pulled, rel=1e-8, abs=1e-10)


def test_without_negatives_it_is_the_gradient_of_byol():
    margins = Margins(positive_scale=2.0, curvature=1.5, angular=0.2)
    for degrees in (10.0, 80.0, 150.0):
        query, keys = query_and_keys(math.radians(degrees))
        byol_curv_loss_func(query[:1], keys[:1], margins).backward()
        angle = torch.tensor(math.radians(degrees), dtype=torch.float64)
        spec = ContrastSpec(1.0, margins, negatives_weight=0.0)
        found = curves.positive_gradient(spec, angle, 0.5)
        # BYOL's loss is 2 - 2 cos.
        assert 2 * found.item() == pytest.approx(abs(query.grad[0, 1].item()), rel=1e-9)
