"""The shipped losses against the papers' arccos form, over all settings and structures."""

import itertools
import math

import pytest
import torch
from naive_losses import (
    naive_polarization,
    naive_positives_only,
    naive_query_key,
    naive_same_id,
)

from solo_margins.losses import (
    Margins,
    byol_curv_loss_func,
    distance_polarization_loss_func,
    generalized_info_nce_loss_func,
    mocov3_margin_loss_func,
    simclr_debiased_loss_func,
    simclr_hard_negative_loss_func,
    simclr_margin_loss_func,
)

ALL_MARGINS = [
    Margins(*numbers, attenuation_type=kind, curve=curve, beyond_pi=beyond)
    for numbers in itertools.product(
        (0.0, 0.4, 3.0), (0.0, 0.5), (1.0, 20.0), (0.7, math.inf), (0.0, 0.25, 1.0)
    )
    for kind, curve, beyond in (("I", "power", "cosine"), ("II", "root", "monotone"))
]
NO_ATTENUATION = [margins for margins in ALL_MARGINS if margins.attenuation == 0.0]
SOME_MARGINS = ALL_MARGINS[::7]
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}
INDEXES = {
    "two views": torch.arange(8).repeat(2),
    "three views": torch.arange(5).repeat(3),
    "interleaved": torch.arange(8).repeat_interleave(2),
    "classes of all sizes": torch.tensor([3, 3, 7, 3, 9, 9, 7, -2, 5, 9, 9, 3]),
    "one class and a stranger": torch.tensor([1, 1, 1, 1, 0]),
}


def vectors(rows, seed, width=6):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, width, dtype=torch.float64, generator=generator)


def value_and_gradients(loss, *inputs):
    inputs = [x.clone().requires_grad_() for x in inputs]
    value = loss(*inputs)
    return [value.detach(), *torch.autograd.grad(value, inputs, allow_unused=True)]


def assert_same(shipped, naive, *inputs, dtype=torch.float64):
    expected = value_and_gradients(naive, *inputs)
    received = value_and_gradients(shipped, *(x.to(dtype) for x in inputs))
    for one, other in zip(received, expected, strict=True):
        if other is None:
            assert one is None
            continue
        # Relative to the largest entry: a gradient of s = 20 is 20 times that of s = 1.
        scale = max(1.0, other.abs().max().item())
        torch.testing.assert_close(
            one.double() / scale, other / scale, rtol=0, atol=TOLERANCE[dtype]
        )


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("temperature", [0.1, 0.5])
def test_mocov3(dtype, temperature):
    query, key = vectors(9, 0), vectors(9, 1)
    for margins in ALL_MARGINS:
        assert_same(
            lambda q, k, m=margins: mocov3_margin_loss_func(q, k, temperature, m),
            lambda q, k, m=margins: 2 * temperature * naive_query_key(q, k, temperature, m),
            query,
            key,
            dtype=dtype,
        )


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0, 1.5])
def test_generalized_info_nce(beta):
    query, key = vectors(7, 2), vectors(7, 3)
    for margins in ALL_MARGINS:
        assert_same(
            lambda q, k, m=margins: generalized_info_nce_loss_func(q, k, 0.2, beta, m),
            lambda q, k, m=margins: naive_query_key(q, k, 0.2, m, beta),
            query,
            key,
        )


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("structure", INDEXES)
def test_simclr(dtype, structure):
    indexes = INDEXES[structure]
    z = vectors(len(indexes), 4)
    for margins in ALL_MARGINS:
        assert_same(
            lambda x, m=margins: simclr_margin_loss_func(x, indexes, 0.2, m),
            lambda x, m=margins: naive_same_id(x, indexes, 0.2, m),
            z,
            dtype=dtype,
        )


@pytest.mark.parametrize("structure", INDEXES)
@pytest.mark.parametrize("temperature", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("tile_size", [1, 3, 100, None])
def test_tiles_change_nothing(structure, temperature, tile_size):
    indexes = INDEXES[structure]
    z, keys = vectors(len(indexes), 5), vectors(len(indexes), 6)
    for margins in SOME_MARGINS:
        assert_same(
            lambda x, m=margins: simclr_margin_loss_func(x, indexes, temperature, m, tile_size),
            lambda x, m=margins: naive_same_id(x, indexes, temperature, m),
            z,
        )
        assert_same(
            lambda q, k, m=margins: mocov3_margin_loss_func(q, k, temperature, m, tile_size),
            lambda q, k, m=margins: 2 * temperature * naive_query_key(q, k, temperature, m),
            z,
            keys,
        )


@pytest.mark.parametrize("rows", [1100, 1500])
def test_automatic_tiles_of_large_batches(rows):
    """Large enough for the automatic choice to cut the matrix into tiles."""
    indexes = torch.arange(rows // 2).repeat(2)
    z = vectors(rows, 7, width=8)
    margins = Margins(0.2, 0.1, 3.0, 1.5, 0.5)
    assert_same(
        lambda x: simclr_margin_loss_func(x, indexes, 0.1, margins),
        lambda x: naive_same_id(x, indexes, 0.1, margins),
        z,
    )
    assert_same(
        lambda q, k: mocov3_margin_loss_func(q, k, 0.1, margins),
        lambda q, k: 0.2 * naive_query_key(q, k, 0.1, margins),
        z,
        vectors(rows, 8, width=8),
    )


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("structure", INDEXES)
@pytest.mark.parametrize(("tau_plus", "beta"), [(0.0, 0.0), (0.1, 0.0), (0.1, 1.0), (0.6, 0.5)])
def test_debiased_and_hard_negatives(dtype, structure, tau_plus, beta):
    indexes = INDEXES[structure]
    z = vectors(len(indexes), 9)
    for margins in SOME_MARGINS:
        assert_same(
            lambda x, m=margins: simclr_hard_negative_loss_func(x, indexes, 0.5, tau_plus, beta, m),
            lambda x, m=margins: naive_same_id(
                x, indexes, 0.5, m, tau_plus=tau_plus, hardness=beta
            ),
            z,
            dtype=dtype,
        )
        if beta == 0.0:
            assert_same(
                lambda x, m=margins: simclr_debiased_loss_func(x, indexes, 0.5, tau_plus, m),
                lambda x, m=margins: naive_same_id(x, indexes, 0.5, m, tau_plus=tau_plus),
                z,
                dtype=dtype,
            )


def test_the_floor_of_debiased_negatives_is_reached_and_exact():
    """A large share of false negatives floors Ng, and then negatives get no gradient."""
    indexes = torch.arange(4).repeat(2)
    z = vectors(4, 10).repeat(2, 1) + 0.01 * vectors(8, 11)
    floored = simclr_debiased_loss_func(z, indexes, 0.5, 0.9)
    expected = naive_same_id(z, indexes, 0.5, Margins(), tau_plus=0.9)
    torch.testing.assert_close(floored, expected)
    assert_same(
        lambda x: simclr_debiased_loss_func(x, indexes, 0.5, 0.9),
        lambda x: naive_same_id(x, indexes, 0.5, Margins(), tau_plus=0.9),
        z,
    )


def test_hard_negatives_at_a_small_temperature():
    """Here logits exceed what exp can hold, so the shifted path is taken."""
    indexes = torch.arange(6).repeat(2)
    assert_same(
        lambda x: simclr_hard_negative_loss_func(x, indexes, 0.005, 0.1, 1.0),
        lambda x: naive_same_id(x, indexes, 0.005, Margins(), tau_plus=0.1, hardness=1.0),
        vectors(12, 12),
    )


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_byol(dtype):
    p, z = vectors(9, 13), vectors(9, 14)
    for margins in NO_ATTENUATION:
        assert_same(
            lambda x, m=margins: byol_curv_loss_func(x, z.to(x.dtype), m),
            lambda x, m=margins: naive_positives_only(x, z, m),
            p,
            dtype=dtype,
        )


def test_byol_gives_its_target_no_gradient():
    p, z = vectors(4, 15).requires_grad_(), vectors(4, 16).requires_grad_()
    byol_curv_loss_func(p, z).backward()
    assert z.grad is None
    assert p.grad.abs().sum() > 0


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("tile_size", [1, 4, None])
@pytest.mark.parametrize("band", [(0.1, 0.9), (0.3, 0.5)])
def test_polarization(dtype, tile_size, band):
    assert_same(
        lambda x: distance_polarization_loss_func(x, *band, tile_size),
        lambda x: naive_polarization(x, *band),
        vectors(11, 17),
        dtype=dtype,
    )
