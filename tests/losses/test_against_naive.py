"""The shipped losses against the papers' algorithms as written, angles by arccos (identity 6)."""

import pytest
import torch
from loss_calls import (
    OWN_MARGINS,
    SOME_MARGINS,
    assert_same,
    margins_by_row,
    value_and_gradients,
    vectors,
)
from naive_losses import (
    naive_polarization,
    naive_positives_only,
    naive_query_key,
    naive_queue,
    naive_same_id,
)

from solo_margins.losses import (
    Margins,
    byol_curv_loss_func,
    distance_polarization_loss_func,
    generalized_info_nce_loss_func,
    mocov2plus_margin_loss_func,
    mocov3_margin_loss_func,
    nnclr_margin_loss_func,
    simclr_debiased_loss_func,
    simclr_hard_negative_loss_func,
    simclr_margin_loss_func,
)

CLASSES = torch.tensor([3, 3, 7, 3, 9, 9, 7, -2, 5, 9, 9, 3])


def every_margins(rows):
    return [*SOME_MARGINS, *OWN_MARGINS, *margins_by_row(rows)]


def compare(shipped, naive, *inputs):
    assert_same(value_and_gradients(shipped, *inputs), value_and_gradients(naive, *inputs))


@pytest.mark.parametrize("temperature", [0.02, 0.1, 0.5])
def test_info_nce(temperature):
    query, key = vectors(9, 0), vectors(9, 1)
    for m in every_margins(9):
        compare(
            lambda q, k, m=m: mocov3_margin_loss_func(q, k, temperature, m),
            lambda q, k, m=m: 2 * temperature * naive_query_key(q, k, temperature, m),
            query,
            key,
        )


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.5])
def test_generalized_info_nce(beta):
    query, key = vectors(7, 2), vectors(7, 3)
    for m in every_margins(7):
        compare(
            lambda q, k, m=m: generalized_info_nce_loss_func(q, k, 0.2, beta, m),
            lambda q, k, m=m: naive_query_key(q, k, 0.2, m, beta),
            query,
            key,
        )


def test_several_positives():
    z = vectors(len(CLASSES), 4)
    for m in every_margins(len(CLASSES)):
        compare(
            lambda x, m=m: simclr_margin_loss_func(x, CLASSES, 0.2, m),
            lambda x, m=m: naive_same_id(x, CLASSES, 0.2, m),
            z,
        )


@pytest.mark.parametrize(("tau_plus", "beta"), [(0.0, 0.0), (0.1, 0.0), (0.1, 1.0), (0.6, 0.5)])
def test_debiased_and_hard_negatives(tau_plus, beta):
    z = vectors(len(CLASSES), 9)
    for m in every_margins(len(CLASSES)):
        compare(
            lambda x, m=m: simclr_hard_negative_loss_func(x, CLASSES, 0.5, tau_plus, beta, m),
            lambda x, m=m: naive_same_id(x, CLASSES, 0.5, m, tau_plus=tau_plus, hardness=beta),
            z,
        )


@pytest.mark.parametrize(("tau_plus", "beta"), [(0.1, 0.0), (0.1, 1.0), (0.6, 0.5)])
def test_debiased_and_hard_negatives_of_a_batch_and_of_a_queue(tau_plus, beta):
    query, key, queue = vectors(7, 18), vectors(7, 19), vectors(11, 20)
    weights, corrected = {"tau_plus": tau_plus, "beta": beta}, {"tau_plus": tau_plus}
    corrected["hardness"] = beta
    for m in every_margins(7):
        compare(
            lambda q, k, m=m: mocov3_margin_loss_func(q, k, 0.5, m, **weights),
            lambda q, k, m=m: naive_query_key(q, k, 0.5, m, **corrected),
            query,
            key,
        )
        compare(
            lambda q, k, m=m: nnclr_margin_loss_func(q, k, 0.5, m, **weights),
            lambda q, k, m=m: naive_query_key(q, k, 0.5, m, **corrected),
            query,
            key,
        )
        compare(
            lambda q, m=m: mocov2plus_margin_loss_func(q, key, queue.t(), 0.5, m, **weights),
            lambda q, m=m: naive_queue(q, key, queue, 0.5, m, **corrected),
            query,
        )


def test_the_floor_of_debiased_negatives_is_reached_and_exact():
    """A large share of false negatives floors Ng, and then negatives get no gradient."""
    indexes = torch.arange(4).repeat(2)
    compare(
        lambda x: simclr_debiased_loss_func(x, indexes, 0.5, 0.9),
        lambda x: naive_same_id(x, indexes, 0.5, Margins(), tau_plus=0.9),
        vectors(4, 10).repeat(2, 1) + 0.01 * vectors(8, 11),
    )


def test_hard_negatives_at_a_small_temperature():
    """Here logits exceed what exp can hold, so the shifted path is taken."""
    indexes = torch.arange(6).repeat(2)
    compare(
        lambda x: simclr_hard_negative_loss_func(x, indexes, 0.005, 0.1, 1.0),
        lambda x: naive_same_id(x, indexes, 0.005, Margins(), tau_plus=0.1, hardness=1.0),
        vectors(12, 12),
    )


def test_positives_only():
    p, z = vectors(9, 13), vectors(9, 14)
    for m in every_margins(9):
        if m.attenuation == 0.0:
            compare(
                lambda x, m=m: byol_curv_loss_func(x, z, m),
                lambda x, m=m: naive_positives_only(x, z, m),
                p,
            )


@pytest.mark.parametrize("band", [(0.1, 0.9), (0.3, 0.5)])
def test_polarization(band):
    compare(
        lambda x: distance_polarization_loss_func(x, *band),
        lambda x: naive_polarization(x, *band),
        vectors(11, 17),
    )
