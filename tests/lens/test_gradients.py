"""The gradients that the lens shows are those that the losses have."""

import math

import pytest
import torch
from naive_losses import naive_curve

from solo_margins.lens.measures import angle_gradients
from solo_margins.losses import (
    Margins,
    byol_curv_loss_func,
    mocov2plus_margin_loss_func,
    mocov3_margin_loss_func,
    simclr_debiased_loss_func,
    simclr_hard_negative_loss_func,
    simclr_margin_loss_func,
)
from solo_margins.losses.capture import capture

SETTINGS = [
    Margins(),
    Margins(angular=0.3, subtractive=0.2),
    Margins(positive_scale=5.0, curvature=0.7),
    Margins(attenuation=0.8),
    Margins(attenuation=0.8, attenuation_type="II", positive_scale=2.0),
    Margins(angular=0.1, subtractive=0.4, positive_scale=3.0, curvature=1.5, attenuation=0.5),
]


def vectors(rows, width=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, width, generator=generator, dtype=torch.float64)


def unit(x):
    return torch.nn.functional.normalize(x, dim=1)


def by_angle(angle, is_positive, is_negative, temperature, margins):
    """Eq. 11, 17, 19–21 by autograd, with the angles themselves as variables."""
    angle = angle.clone().requires_grad_()
    shifted = torch.where(is_positive, angle + margins.angular, angle)
    logits = (shifted.cos() - margins.subtractive * is_positive) / temperature
    taken = torch.where(is_positive | is_negative, logits, -math.inf)
    positive = torch.where(is_positive, logits, -math.inf).logsumexp(dim=1)
    loss = taken.logsumexp(dim=1) - positive
    (gradient,) = torch.autograd.grad(loss.sum(), angle)
    q = (positive - taken.logsumexp(dim=1)).exp().detach().unsqueeze(1)
    factor = 1 / (1 - margins.attenuation * q)
    weight = margins.positive_scale * naive_curve(angle.detach(), margins)
    gradient = torch.where(is_positive, gradient * weight * factor, gradient)
    if margins.attenuation_type == "I":
        gradient = torch.where(is_negative, gradient * factor, gradient)
    return gradient.abs()


@pytest.mark.parametrize("margins", SETTINGS, ids=str)
def test_query_and_key(margins):
    query, key = vectors(9), vectors(9, seed=1)
    with capture() as seen:
        loss = mocov3_margin_loss_func(query, key, 0.3, margins)
    [one] = seen
    found = angle_gradients(one, max_rows=9)
    angle = (unit(query) @ unit(key).t()).acos()
    eye = torch.eye(9, dtype=torch.bool)
    expected = by_angle(angle, eye, ~eye, 0.3, margins)
    plain = by_angle(angle, eye, ~eye, 0.3, Margins())
    torch.testing.assert_close(found["positive"], expected.diagonal())
    torch.testing.assert_close(found["positive_plain"], plain.diagonal())
    torch.testing.assert_close(found["negative"].sum(), expected[~eye].sum())
    torch.testing.assert_close(found["negative_plain"].sum(), plain[~eye].sum())
    torch.testing.assert_close(found["positive_angle"], angle.diagonal())
    torch.testing.assert_close(found["negative_angle"], angle[~eye])
    torch.testing.assert_close(found["loss"].mean() * 2 * 0.3, loss)
    assert found["candidates"] == 9


@pytest.mark.parametrize("margins", SETTINGS, ids=str)
def test_three_views_of_every_image(margins):
    z, ids = vectors(12), torch.arange(4).repeat(3)
    with capture() as seen:
        loss = simclr_margin_loss_func(z, ids, 0.4, margins)
    found = angle_gradients(seen[0], max_rows=100)
    angle = (unit(z) @ unit(z).t()).clamp(-1, 1).acos()
    own = torch.eye(12, dtype=torch.bool)
    is_positive = (ids.unsqueeze(0) == ids.unsqueeze(1)) & ~own
    is_negative = ~is_positive & ~own
    expected = by_angle(angle, is_positive, is_negative, 0.4, margins)
    torch.testing.assert_close(found["positive"].sum(), expected[is_positive].sum())
    torch.testing.assert_close(found["negative"].sum(), expected[is_negative].sum())
    torch.testing.assert_close(found["loss"].mean(), loss)
    assert found["candidates"] == 10


def test_only_the_first_rows_are_looked_at():
    query, key = vectors(9), vectors(9, seed=1)
    with capture() as seen:
        mocov3_margin_loss_func(query, key, 0.3)
    whole, part = angle_gradients(seen[0], 9), angle_gradients(seen[0], 4)
    torch.testing.assert_close(part["positive"], whole["positive"][:4])
    torch.testing.assert_close(part["q"], whole["q"][:4])
    assert part["candidates"] == 9  # against all of the keys


def test_a_queue_is_looked_at_as_a_whole():
    query, key, queue = vectors(5), vectors(5, seed=1), vectors(6, 5000, seed=2)
    with capture() as seen:
        loss = mocov2plus_margin_loss_func(query, key, queue, 0.5)
    found = angle_gradients(seen[0], 5)
    torch.testing.assert_close(found["loss"].mean(), loss)
    assert found["candidates"] == 5001
    angle = (unit(query) @ unit(queue.t()).t()).acos()
    logits = angle.cos() / 0.5
    positive = (unit(query) * unit(key)).sum(dim=1) / 0.5
    whole = torch.logaddexp(positive, logits.logsumexp(dim=1))
    expected = ((logits - whole.unsqueeze(1)).exp() * angle.sin() / 0.5).sum()
    torch.testing.assert_close(found["negative"].sum(), expected)


def test_labels_without_a_partner_count_for_nothing():
    z, ids = vectors(5), torch.tensor([0, 0, 1, 2, 3])
    with capture() as seen:
        loss = simclr_margin_loss_func(z, ids, 0.4)
    found = angle_gradients(seen[0], 5)
    assert len(found["positive"]) == len(found["loss"]) == len(found["q"]) == 2
    torch.testing.assert_close(found["loss"].mean(), loss)


@pytest.mark.parametrize(
    ("loss_func", "settings"),
    [
        (simclr_debiased_loss_func, {"tau_plus": 0.1}),
        (simclr_hard_negative_loss_func, {"tau_plus": 0.05, "beta": 0.7}),
    ],
)
def test_corrected_negatives(loss_func, settings):
    """The gradient by a vector is made of those by its angles: compare their total effect."""
    z, ids = unit(vectors(10)).requires_grad_(), torch.arange(5).repeat(2)
    with capture() as seen:
        loss = loss_func(z, ids, 0.5, **settings)
    found = angle_gradients(seen[0], 10)
    torch.testing.assert_close(found["loss"].mean(), loss.detach())
    eye = torch.eye(10, dtype=torch.bool)
    is_positive = (ids.unsqueeze(0) == ids.unsqueeze(1)) & ~eye
    cosine = (z @ z.t()).detach().requires_grad_()
    count = 8
    logits = cosine / 0.5
    beta = settings.get("beta", 0.0)
    positive = torch.where(is_positive, logits, -math.inf).logsumexp(dim=1)
    negatives = torch.where(~is_positive & ~eye, logits, -math.inf)
    weighted = (
        ((1 + beta) * negatives).logsumexp(dim=1)
        - (torch.where(negatives.isinf(), -math.inf, beta * logits)).logsumexp(dim=1)
        + math.log(count)
    )
    tau = settings["tau_plus"]
    corrected = (weighted.exp() - count * tau * positive.exp()) / (1 - tau)
    corrected = corrected.clamp_min(count * math.exp(-1 / 0.5))
    total = -(positive - (positive.exp() + corrected).log())
    (gradient,) = torch.autograd.grad(total.sum(), cosine)
    by_angle_size = gradient.abs() * (1 - cosine.detach().square()).clamp_min(0).sqrt()
    torch.testing.assert_close(found["positive"].sum(), by_angle_size[is_positive].sum())
    torch.testing.assert_close(found["negative"].sum(), by_angle_size[~is_positive & ~eye].sum())


@pytest.mark.parametrize(
    "margins", [Margins(), Margins(angular=0.3), Margins(positive_scale=4.0, curvature=2.0)]
)
def test_pairs_without_negatives(margins):
    p, z = vectors(7), vectors(7, seed=1)
    with capture() as seen:
        loss = byol_curv_loss_func(p, z, margins)
    found = angle_gradients(seen[0], 7)
    angle = torch.nn.functional.cosine_similarity(p, z).acos()
    curve = naive_curve(angle, margins)
    expected = ((angle + margins.angular).sin() * margins.positive_scale * curve).abs()
    torch.testing.assert_close(found["positive"], expected)
    torch.testing.assert_close(found["positive_plain"], angle.sin())
    torch.testing.assert_close(found["curve"], curve)
    torch.testing.assert_close(2 + 2 * found["loss"].mean(), loss)
    assert found["negative"].sum() == 0
    assert len(found["negative_angle"]) == 42
    assert found["candidates"] == 1


def test_several_may_look_and_get_no_gradient():
    query, key = vectors(4).requires_grad_(), vectors(4, seed=1)
    with capture() as outer:
        mocov3_margin_loss_func(query, key)
        with capture() as inner:
            mocov3_margin_loss_func(query, key)
    mocov3_margin_loss_func(query, key)
    assert (len(outer), len(inner)) == (2, 1)
    assert not any(one.rows.requires_grad for one in outer)
