"""Pull, push and q that the lens shows are those of the losses as the papers write them."""

import pytest
import torch
from margin_names import named
from naive_losses import naive_contrastive, naive_curve
from torch.nn.functional import cosine_similarity, normalize

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


def own_scaling(angle, q):
    return 2 * (1 - q) * (angle - 1.2).abs()


PLAIN = Margins()
MARGINS = [
    PLAIN,
    Margins(angular=0.3, subtractive=0.2),
    Margins(angular=-0.4),
    Margins(positive_scale=5.0, curvature=0.7),
    Margins(attenuation=0.8),
    Margins(attenuation=0.8, attenuation_type="II", positive_scale=2.0, scaling=own_scaling),
    Margins(angular=0.1, subtractive=0.4, positive_scale=3.0, curvature=1.5, attenuation=0.5),
    Margins(
        angular=torch.linspace(-0.3, 0.5, 12),
        subtractive=torch.linspace(0, 0.5, 12),
        positive_scale=torch.linspace(0.5, 3, 12),
        scaling=own_scaling,
    ),
]


def vectors(rows, width=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, width, generator=generator, dtype=torch.float64)


def measured(loss_func, *arguments, max_rows=100, **settings):
    """Return what the lens measures of a loss, and the loss."""
    with capture() as seen:
        loss = loss_func(*arguments, **settings)
    [one] = seen
    return row_measures(one, max_rows), loss.detach()


def naive_forces(rows, columns, is_positive, is_negative, temperature, margins, **settings):
    """Return pull and push of each row, from the derivatives of the loss by its columns."""
    rows, columns = normalize(rows, dim=1), normalize(columns, dim=1)
    forces = {"pull": [], "push": []}
    for number, u in enumerate(rows):
        row = slice(number, number + 1)
        masks = is_positive[row], is_negative[row]
        leaf = columns.clone().requires_grad_()
        loss = naive_contrastive(
            rows[row], leaf, *masks, temperature, margins.of_rows(row), **settings
        )
        (by_column,) = torch.autograd.grad(loss.sum(), leaf)
        cosine = columns @ u
        by_cosine = by_column @ u / (1 - cosine.square())
        towards = by_cosine.unsqueeze(1) * (columns - cosine.unsqueeze(1) * u)
        for force, mask in zip(forces.values(), masks, strict=True):
            force.append(temperature * towards[mask[0]].sum(dim=0).norm())
    return {name: torch.stack(force) for name, force in forces.items()}


def check(found, *pairs, temperature, margins, negatives_weight=1.0, **settings):
    """Compare what is measured of rows, columns and the masks of their pairs with the papers'."""
    loss = naive_contrastive(*pairs, temperature, margins, negatives_weight, **settings)
    torch.testing.assert_close(found["loss"], loss)
    likelihood = naive_contrastive(*pairs, temperature, margins, **settings)
    torch.testing.assert_close(found["q"], (-likelihood).exp())
    for suffix, used in (("", margins), ("_plain", PLAIN)):
        forces = naive_forces(
            *pairs, temperature, used, negatives_weight=negatives_weight, **settings
        )
        for name, force in forces.items():
            if name == "pull" or negatives_weight > 0:
                torch.testing.assert_close(found[name + suffix], force)
    rows, columns, is_positive, is_negative = pairs
    angle = (normalize(rows, dim=1) @ normalize(columns, dim=1).t()).acos()
    torch.testing.assert_close(found["positive_angle"], angle[is_positive])
    torch.testing.assert_close(found["negative_angle"], angle[is_negative])
    left = naive_curve(angle, margins)
    if margins.scaling is not None:
        left = left * margins.scaling(angle, (-likelihood).exp().unsqueeze(1))
    assert found["silenced_positives"].equal((left < 0.1)[is_positive])


@pytest.mark.parametrize("margins", MARGINS, ids=named)
@pytest.mark.parametrize("negatives_weight", [0.0, 0.5, 1.0, 2.0])
def test_query_and_key(margins, negatives_weight):
    query, key = vectors(12), vectors(12, seed=1)
    found, loss = measured(
        generalized_info_nce_loss_func, query, key, 0.3, negatives_weight, margins
    )
    eye = torch.eye(12, dtype=torch.bool)
    settings = {"temperature": 0.3, "margins": margins, "negatives_weight": negatives_weight}
    check(found, query, key, eye, ~eye, **settings)
    torch.testing.assert_close(found["loss"].mean(), loss)
    assert ("push" in found) == (negatives_weight > 0)
    # Elsewhere the loss of guessing depends on the cosine that all pairs have.
    assert ("chance_loss" in found) == (negatives_weight == 1)


@pytest.mark.parametrize("margins", MARGINS, ids=named)
@pytest.mark.parametrize(
    ("loss_func", "settings", "naive"),
    [
        (simclr_margin_loss_func, {}, {}),
        (simclr_debiased_loss_func, {"tau_plus": 0.1}, {"tau_plus": 0.1}),
        (
            simclr_hard_negative_loss_func,
            {"tau_plus": 0.05, "beta": 0.7},
            {"tau_plus": 0.05, "hardness": 0.7},
        ),
        (
            simclr_margin_loss_func,
            {"mean": 0.4, "width": 0.5},
            {"tau_plus": 0.0, "gaussian": (0.4, 0.5)},
        ),
    ],
)
def test_three_views_with_all_kinds_of_negatives(loss_func, settings, naive, margins):
    z, ids = vectors(12), torch.arange(4).repeat(3)
    found, loss = measured(loss_func, z, ids, 0.5, margins=margins, **settings)
    same, own = ids.unsqueeze(0) == ids.unsqueeze(1), torch.eye(12, dtype=torch.bool)
    check(found, z, z, same & ~own, ~same, temperature=0.5, margins=margins, **naive)
    torch.testing.assert_close(found["loss"].mean(), loss)
    # Two positives and nine negatives of each row, all with the same cosine.
    torch.testing.assert_close(found["chance_loss"].exp(), torch.full((12,), 11 / 2).double())


def test_a_queue_is_looked_at_as_a_whole():
    query, key, queue = vectors(5), vectors(5, seed=1), vectors(6, 5000, seed=2)
    found, loss = measured(mocov2plus_margin_loss_func, query, key, queue, 0.5)
    is_positive = torch.eye(5, 5005, dtype=torch.bool)
    is_negative = (torch.arange(5005) >= 5).expand(5, 5005)
    columns = torch.cat([key, queue.t()])
    check(found, query, columns, is_positive, is_negative, temperature=0.5, margins=PLAIN)
    torch.testing.assert_close(found["loss"].mean(), loss)
    assert found["chance_loss"].exp().tolist() == pytest.approx([5001.0] * 5)


def test_of_a_long_queue_fewer_rows_are_looked_at():
    query, key, queue = vectors(200), vectors(200, seed=1), vectors(6, 2**14, seed=2)
    found, _ = measured(mocov2plus_margin_loss_func, query, key, queue, 0.5, max_rows=256)
    assert len(found["pull"]) * 2**14 == 2**21


def test_only_the_first_rows_are_looked_at_with_their_own_margins():
    margins = Margins(angular=torch.linspace(0, 0.5, 12))
    query, key = vectors(12), vectors(12, seed=1)
    whole, _ = measured(mocov3_margin_loss_func, query, key, 0.3, margins)
    part, _ = measured(mocov3_margin_loss_func, query, key, 0.3, margins, max_rows=4)
    for name in ("pull", "push", "q", "chance_loss"):
        torch.testing.assert_close(part[name], whole[name][:4])


def test_labels_without_a_partner_count_for_nothing():
    z, ids = vectors(5), torch.tensor([0, 0, 1, 2, 3])
    found, loss = measured(simclr_margin_loss_func, z, ids, 0.4)
    for name in ("pull", "push", "loss", "q", "chance_loss"):
        assert len(found[name]) == 2
    assert len(found["negative_angle"]) == 2 * 3
    torch.testing.assert_close(found["loss"].mean(), loss)


@pytest.mark.parametrize(
    "margins",
    [
        PLAIN,
        Margins(angular=0.3),
        Margins(positive_scale=4.0, curvature=2.0),
        Margins(curvature=0.3),  # leaves some positives a little, and silences none
        Margins(curvature=0.3, scaling=lambda angle, q: angle / 10 + q),
        Margins(angular=torch.linspace(-0.2, 0.6, 7), positive_scale=torch.arange(1.0, 8.0)),
    ],
    ids=named,
)
def test_pairs_without_negatives(margins):
    p, z = vectors(7), vectors(7, seed=1)
    found, loss = measured(byol_curv_loss_func, p, z, margins)
    angle = cosine_similarity(p, z).acos()
    weight = naive_curve(angle, margins)
    if margins.scaling is not None:
        weight = weight * margins.scaling(angle, torch.zeros_like(angle))
    expected = ((angle + margins.angular).sin() * margins.positive_scale * weight).abs()
    torch.testing.assert_close(found["pull"], expected)
    torch.testing.assert_close(found["pull_plain"], angle.sin())
    assert found["silenced_positives"].equal(weight < 0.1)
    torch.testing.assert_close(2 + 2 * found["loss"].mean(), loss)
    assert len(found["negative_angle"]) == 42
    assert not {"push", "q", "chance_loss"} & found.keys()
