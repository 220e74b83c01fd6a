"""Pull and push that the lens shows are those of the losses' gradients."""

import math

import pytest
import torch
from naive_losses import naive_curve

from solo_margins.lens.measures import row_measures
from solo_margins.losses import (
    Margins,
    byol_curv_loss_func,
    generalized_info_nce_loss_func,
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


def forces(rows, columns, is_positive, is_negative, temperature, margins):
    """Eq. 11, 17, 19–21, row by row and pair by pair: the lengths of pull and push."""
    found = []
    for u, positives, negatives in zip(rows, is_positive, is_negative, strict=True):
        angle = [math.acos(float((u @ v).clamp(-1, 1))) for v in columns]
        mine = [j for j in range(len(columns)) if positives[j]]
        others = [j for j in range(len(columns)) if negatives[j]]
        exp = {j: math.exp(math.cos(angle[j]) / temperature) for j in others}
        for j in mine:
            shifted = math.cos(angle[j] + margins.angular) - margins.subtractive
            exp[j] = math.exp(shifted / temperature)
        if not mine:
            continue
        q = sum(exp[j] for j in mine) / sum(exp.values())
        factor = 1 / (1 - margins.attenuation * q)
        pull, push = torch.zeros_like(u), torch.zeros_like(u)
        for j in mine:
            share = exp[j] / sum(exp[k] for k in mine)
            slope = math.sin(angle[j] + margins.angular) / math.sin(angle[j])
            weight = margins.positive_scale * naive_curve(u.new_tensor(angle[j]), margins).item()
            tangent = columns[j] - math.cos(angle[j]) * u
            pull += share * (1 - q) * slope * weight * factor * tangent
        for j in others:
            by_row = factor if margins.attenuation_type == "I" else 1.0
            push += exp[j] / sum(exp.values()) * by_row * (columns[j] - math.cos(angle[j]) * u)
        found.append((pull.norm(), push.norm()))
    return (torch.stack(side) for side in zip(*found, strict=True))


def check_forces(found, *pairs, margins):
    for suffix, one in (("", margins), ("_plain", Margins())):
        pull, push = forces(*pairs, one)
        torch.testing.assert_close(found[f"pull{suffix}"], pull)
        torch.testing.assert_close(found[f"push{suffix}"], push)


@pytest.mark.parametrize("margins", SETTINGS, ids=str)
def test_query_and_key(margins):
    query, key = vectors(9), vectors(9, seed=1)
    with capture() as seen:
        loss = mocov3_margin_loss_func(query, key, 0.3, margins)
    [one] = seen
    found = row_measures(one, max_rows=9)
    angle = (unit(query) @ unit(key).t()).acos()
    eye = torch.eye(9, dtype=torch.bool)
    check_forces(found, unit(query), unit(key), eye, ~eye, 0.3, margins=margins)
    torch.testing.assert_close(found["positive_angle"], angle.diagonal())
    torch.testing.assert_close(found["negative_angle"], angle[~eye])
    torch.testing.assert_close(found["loss"].mean() * 2 * 0.3, loss)
    torch.testing.assert_close(found["chance_loss"], torch.full((9,), 9.0).double().log())


@pytest.mark.parametrize("margins", SETTINGS, ids=str)
def test_three_views_of_every_image(margins):
    z, ids = vectors(12), torch.arange(4).repeat(3)
    with capture() as seen:
        loss = simclr_margin_loss_func(z, ids, 0.4, margins)
    found = row_measures(seen[0], max_rows=100)
    own = torch.eye(12, dtype=torch.bool)
    is_positive = (ids.unsqueeze(0) == ids.unsqueeze(1)) & ~own
    is_negative = ~is_positive & ~own
    check_forces(found, unit(z), unit(z), is_positive, is_negative, 0.4, margins=margins)
    torch.testing.assert_close(found["loss"].mean(), loss)
    # Two positives and nine negatives of each row, all with the same cosine.
    torch.testing.assert_close(found["chance_loss"], torch.full((12,), 11 / 2).double().log())


def test_only_the_first_rows_are_looked_at():
    query, key = vectors(9), vectors(9, seed=1)
    with capture() as seen:
        mocov3_margin_loss_func(query, key, 0.3)
    whole, part = row_measures(seen[0], 9), row_measures(seen[0], 4)
    torch.testing.assert_close(part["pull"], whole["pull"][:4])
    torch.testing.assert_close(part["q"], whole["q"][:4])
    assert part["chance_loss"].exp().tolist() == pytest.approx([9.0] * 4)  # against all of the keys


def test_a_queue_is_looked_at_as_a_whole():
    query, key, queue = vectors(5), vectors(5, seed=1), vectors(6, 5000, seed=2)
    with capture() as seen:
        loss = mocov2plus_margin_loss_func(query, key, queue, 0.5)
    found = row_measures(seen[0], 5)
    torch.testing.assert_close(found["loss"].mean(), loss)
    assert found["chance_loss"].exp().tolist() == pytest.approx([5001.0] * 5)
    logits = unit(query) @ unit(queue.t()).t() / 0.5
    positive = (unit(query) * unit(key)).sum(dim=1) / 0.5
    whole = torch.logaddexp(positive, logits.logsumexp(dim=1))
    pushed = (logits - whole.unsqueeze(1)).exp() @ unit(queue.t())
    pushed -= (pushed * unit(query)).sum(dim=1, keepdim=True) * unit(query)
    torch.testing.assert_close(found["push"], pushed.norm(dim=1))
    sine = (positive * 0.5).acos().sin()
    torch.testing.assert_close(found["pull"], (1 - (positive - whole).exp()) * sine)


def test_labels_without_a_partner_count_for_nothing():
    z, ids = vectors(5), torch.tensor([0, 0, 1, 2, 3])
    with capture() as seen:
        loss = simclr_margin_loss_func(z, ids, 0.4)
    found = row_measures(seen[0], 5)
    assert len(found["pull"]) == len(found["push"]) == len(found["loss"]) == len(found["q"]) == 2
    torch.testing.assert_close(found["loss"].mean(), loss)


@pytest.mark.parametrize("margins", SETTINGS, ids=str)
@pytest.mark.parametrize("negatives_weight", [0.0, 0.5, 1.0, 2.0])
def test_q_is_the_softmax_of_the_logits_for_every_weight_of_negatives(negatives_weight, margins):
    query, key = vectors(9), vectors(9, seed=1)
    with capture() as seen:
        loss = generalized_info_nce_loss_func(query, key, 0.3, negatives_weight, margins)
    found = row_measures(seen[0], 9)
    cosine = unit(query) @ unit(key).t()
    shifted = (cosine.acos() + margins.angular).cos() - margins.subtractive
    logits = torch.where(torch.eye(9, dtype=torch.bool), shifted, cosine) / 0.3
    torch.testing.assert_close(found["q"], logits.softmax(dim=1).diagonal())
    torch.testing.assert_close(found["loss"].mean(), loss)
    assert len(found["push"]) == (0 if negatives_weight == 0.0 else 9)
    # Elsewhere the loss of guessing depends on the cosine that all pairs have.
    assert len(found["chance_loss"]) == (9 if negatives_weight == 1.0 else 0)


@pytest.mark.parametrize(
    ("loss_func", "settings"),
    [
        (simclr_debiased_loss_func, {"tau_plus": 0.1}),
        (simclr_hard_negative_loss_func, {"tau_plus": 0.05, "beta": 0.7}),
    ],
)
def test_corrected_negatives(loss_func, settings):
    z, ids = unit(vectors(10)).requires_grad_(), torch.arange(5).repeat(2)
    with capture() as seen:
        loss = loss_func(z, ids, 0.5, **settings)
    found = row_measures(seen[0], 10)
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
    q = positive.exp() / (positive.exp() + corrected)
    torch.testing.assert_close(found["q"], q.detach())
    total = -(positive - (positive.exp() + corrected).log())
    (gradient,) = torch.autograd.grad(total.sum(), cosine)
    vectors_of = {"pull": is_positive, "push": ~is_positive & ~eye}
    for side, pairs in vectors_of.items():
        force = 0.5 * torch.where(pairs, gradient, 0.0) @ z.detach()
        force -= (force * z.detach()).sum(dim=1, keepdim=True) * z.detach()
        torch.testing.assert_close(found[side], force.norm(dim=1))


@pytest.mark.parametrize(
    "margins",
    [
        Margins(),
        Margins(angular=0.3),
        Margins(positive_scale=4.0, curvature=2.0),
        Margins(curvature=0.3),  # leaves some positives a little, and silences none
    ],
)
def test_pairs_without_negatives(margins):
    p, z = vectors(7), vectors(7, seed=1)
    with capture() as seen:
        loss = byol_curv_loss_func(p, z, margins)
    found = row_measures(seen[0], 7)
    angle = torch.nn.functional.cosine_similarity(p, z).acos()
    curve = naive_curve(angle, margins)
    expected = ((angle + margins.angular).sin() * margins.positive_scale * curve).abs()
    torch.testing.assert_close(found["pull"], expected)
    torch.testing.assert_close(found["pull_plain"], angle.sin())
    assert found["silenced_positives"].equal(curve < 0.1)
    torch.testing.assert_close(2 + 2 * found["loss"].mean(), loss)
    assert len(found["push"]) == 0
    assert len(found["negative_angle"]) == 42
    assert len(found["q"]) == len(found["chance_loss"]) == 0
