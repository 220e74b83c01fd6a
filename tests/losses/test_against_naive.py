"""The shipped losses against the papers' arccos form, over all settings and structures."""

import itertools
import math

import pytest
import torch
from naive_losses import (
    naive_assigned,
    naive_band_count,
    naive_polarization,
    naive_positives_only,
    naive_query_key,
    naive_queue,
    naive_same_id,
)

from solo_margins.losses import (
    Margins,
    byol_curv_loss_func,
    deepclusterv2_margin_loss_func,
    distance_polarization_loss_func,
    distance_polarization_with_count,
    generalized_info_nce_loss_func,
    mocov2plus_margin_loss_func,
    mocov3_margin_loss_func,
    nnclr_margin_loss_func,
    simclr_debiased_loss_func,
    simclr_hard_negative_loss_func,
    simclr_margin_loss_func,
    simsiam_curv_loss_func,
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


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("temperature", [0.1, 0.5])
def test_nnclr(dtype, temperature):
    neighbours, predictions = vectors(9, 18), vectors(9, 19)
    for margins in ALL_MARGINS:
        assert_same(
            lambda nn, p, m=margins: nnclr_margin_loss_func(nn, p, temperature, m),
            lambda nn, p, m=margins: naive_query_key(nn, p, temperature, m),
            neighbours,
            predictions,
            dtype=dtype,
        )


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("temperature", [0.1, 0.5])
@pytest.mark.parametrize(("rows", "length"), [(7, 11), (5, 1), (1, 4)])
def test_mocov2plus(dtype, temperature, rows, length):
    query, key, queue = vectors(rows, 20), vectors(rows, 21), vectors(length, 22).t()
    for margins in ALL_MARGINS:
        assert_same(
            lambda q, m=margins: mocov2plus_margin_loss_func(
                q, key.to(q.dtype), queue.to(q.dtype), temperature, m
            ),
            lambda q, m=margins: naive_queue(q, key, queue, temperature, m),
            query,
            dtype=dtype,
        )


@pytest.mark.parametrize("temperature", [0.02, 0.1])
def test_mocov2plus_against_a_long_queue(temperature):
    """Long enough for the automatic choice to cut the matrix into tiles."""
    query, key, queue = vectors(70, 23), vectors(70, 24), vectors(20_000, 25).t()
    margins = Margins(0.2, 0.1, 3.0, 1.5, 0.5)
    assert_same(
        lambda q: mocov2plus_margin_loss_func(q, key, queue, temperature, margins),
        lambda q: naive_queue(q, key, queue, temperature, margins),
        query,
    )


def test_mocov2plus_gives_keys_and_queue_no_gradient():
    query, key = vectors(4, 26).requires_grad_(), vectors(4, 27).requires_grad_()
    queue = vectors(5, 28).t().requires_grad_()
    mocov2plus_margin_loss_func(query, key, queue).backward()
    assert key.grad is None
    assert queue.grad is None
    assert query.grad.abs().sum() > 0


ASSIGNMENTS = {
    "every row": torch.tensor([2, 0, 0, 4, 1, 2, 3]),
    "some rows": torch.tensor([2, -1, 0, -1, 1, 2, -1]),
    "one row": torch.tensor([-1, -1, 4, -1, -1, -1, -1]),
}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("temperature", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("kind", ASSIGNMENTS)
def test_deepclusterv2(dtype, temperature, kind):
    z, prototypes, assignments = vectors(7, 29), vectors(5, 30), ASSIGNMENTS[kind]
    for margins in ALL_MARGINS:
        assert_same(
            lambda x, m=margins: deepclusterv2_margin_loss_func(
                x, prototypes.to(x.dtype), assignments, temperature, m
            ),
            lambda x, m=margins: naive_assigned(x, prototypes, assignments, temperature, m),
            z,
            dtype=dtype,
        )


@pytest.mark.parametrize("kind", [torch.int8, torch.int32, torch.int64], ids=str)
def test_deepclusterv2_takes_assignments_of_any_integer_dtype(kind):
    z, prototypes, assignments = vectors(7, 29), vectors(5, 30), ASSIGNMENTS["some rows"]
    expected = naive_assigned(z, prototypes, assignments, 0.1, Margins())
    received = deepclusterv2_margin_loss_func(z, prototypes, assignments.to(kind))
    torch.testing.assert_close(received, expected)


def test_deepclusterv2_gives_prototypes_no_gradient():
    z, prototypes = vectors(7, 31).requires_grad_(), vectors(5, 32).requires_grad_()
    deepclusterv2_margin_loss_func(z, prototypes, ASSIGNMENTS["some rows"]).backward()
    assert prototypes.grad is None
    left_out = ASSIGNMENTS["some rows"] < 0
    assert (z.grad[left_out] == 0).all()
    assert (z.grad[~left_out].abs().sum(dim=1) > 0).all()


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


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_simsiam(dtype):
    p, z = vectors(9, 33), vectors(9, 34)
    for margins in NO_ATTENUATION:
        assert_same(
            lambda x, m=margins: simsiam_curv_loss_func(x, z.to(x.dtype), m),
            lambda x, m=margins: (naive_positives_only(x, z, m) - 2) / 2,
            p,
            dtype=dtype,
        )


@pytest.mark.parametrize("loss", [byol_curv_loss_func, simsiam_curv_loss_func])
def test_positives_only_give_their_target_no_gradient(loss):
    p, z = vectors(4, 15).requires_grad_(), vectors(4, 16).requires_grad_()
    loss(p, z).backward()
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


@pytest.mark.parametrize("tile_size", [1, 4, None])
@pytest.mark.parametrize("band", [(0.1, 0.9), (0.3, 0.5), (0.98, 0.99)])
@pytest.mark.parametrize("rows", [1, 2, 11])
def test_count_of_pairs_inside_the_band(tile_size, band, rows):
    z = vectors(rows, 17).requires_grad_()
    loss, count = distance_polarization_with_count(z, *band, tile_size)
    assert count.item() == naive_band_count(z.detach(), *band)
    assert not count.requires_grad
    assert torch.equal(loss, distance_polarization_loss_func(z, *band, tile_size))
    loss.backward()
    with torch.no_grad():
        assert distance_polarization_with_count(z, *band, tile_size)[1] == count
