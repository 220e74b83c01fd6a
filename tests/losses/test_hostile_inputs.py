"""Inputs that break careless code: finite value, finite gradients, and a NaN that stays visible."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from loss_calls import PUBLIC, TILED, Settings, focal, takes
from margin_names import named

from solo_margins.losses import (
    Margins,
    deepclusterv2_margin_loss_func,
    distance_polarization_with_count,
    generalized_info_nce_loss_func,
    mocov3_margin_loss_func,
    nnclr_margin_loss_func,
    plain,
    simclr_debiased_loss_func,
    simclr_hard_negative_loss_func,
    simclr_margin_loss_func,
)
from solo_margins.losses.margins import ContrastSpec

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
MARGINS = [
    Margins(),
    Margins(angular=0.5, subtractive=0.4),
    Margins(angular=3.0),
    Margins(angular=3.0, beyond_pi="monotone"),
    Margins(attenuation=1.0),
    Margins(attenuation=1.0, attenuation_type="II"),
    Margins(0.5, 0.4, 20.0, 0.7, 1.0),
    Margins(0.5, 0.4, 20.0, 1 / 3, 1.0, curve="root"),
    Margins(0.5, 0.4, 20.0, 1 / 3, 1.0, curve="superellipse"),
    Margins(-1.2, scaling=focal),
    Margins(-1.2, beyond_pi="monotone"),
]
TEMPERATURES = [0.01, 0.2]


CALLS = {
    **{name: PUBLIC[name] for name in PUBLIC if name not in ("module", "classes")},
    "simclr, tiled": TILED["simclr"],
    "positives only": lambda a, b, s: PUBLIC["generalized"](a, b, replace(s, negatives_weight=0.0)),
}


def plain_mocov3(query, key, temperature, margins):
    """Return MoCo v3's loss by its plain form."""
    return 2 * temperature * plain.query_key(query, key, ContrastSpec(temperature, margins))


def gradients(first, second, temperature, margins):
    """Yield name, value and gradients of every loss that takes the margins."""
    first, second = first.clone().requires_grad_(), second.clone().requires_grad_()
    # Queue and prototypes are both batches.
    s = Settings(temperature, margins, tile_size=1, mean=0.3, width=0.2)
    for name, call in CALLS.items():
        if takes(name, margins):
            value = call(first, second, s)
            found = torch.autograd.grad(value, (first, second), allow_unused=True)
            yield name, value, [g for g in found if g is not None]


def general(dtype, rows=4):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(rows, 8, generator=generator).to(dtype)


def filled(dtype, value):
    return torch.full((4, 8), value, dtype=torch.float64).to(dtype)


def smallest(dtype):
    return torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps


HOSTILE = {
    "identical pairs": lambda d: (general(d), general(d)),
    "opposite pairs": lambda d: (general(d), -general(d)),
    "all rows identical": lambda d: (filled(d, 0.5), filled(d, 0.5)),
    "all rows opposite": lambda d: (filled(d, 0.5), filled(d, -0.5)),
    "zero": lambda d: (filled(d, 0.0), filled(d, 0.0)),
    "one zero row": lambda d: (general(d) * torch.tensor([[0], [1], [1], [1]]), general(d)),
    "zero against ones": lambda d: (filled(d, 0.0), filled(d, 1.0)),
    "huge": lambda d: (general(d) * 0 + torch.finfo(d).max, general(d).clamp(-1, 1) * 6e4),
    "tiny": lambda d: (general(d).sign() * torch.finfo(d).tiny, general(d)),
    "denormal": lambda d: (general(d).sign() * smallest(d), general(d).sign() * smallest(d)),
    "mixed": lambda d: (general(d) * torch.tensor([[1], [0], [1], [1]]), filled(d, 6e4)),
    "nearly identical": lambda d: (general(d), general(d) * (1 + torch.finfo(d).eps * 2)),
    "batch of one": lambda d: (general(d, 1), general(d, 2)[1:]),
    "batch of one, identical": lambda d: (general(d, 1), general(d, 1)),
    "batch of one, zero": lambda d: (filled(d, 0.0)[:1], filled(d, 0.0)[:1]),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", HOSTILE)
def test_value_and_gradients_are_finite(kind, dtype):
    first, second = HOSTILE[kind](dtype)
    pairs = list(itertools.product(MARGINS, TEMPERATURES))
    if dtype == torch.float16:
        # What float16 cannot hold is in a test of its own.
        pairs = [pair for pair in pairs if kind != "tiny" and pair[0].attenuation == 0.0]
    elif dtype != torch.float32:
        # Half precision is computed in float32: each of the margins at one temperature will do.
        pairs = [pairs[2 * number + number % 2] for number in range(len(MARGINS))]
    if dtype == torch.bfloat16:
        pairs = pairs[-3:]
    for margins, temperature in pairs:
        for name, value, found in gradients(first, second, temperature, margins):
            case = (name, margins, temperature)
            assert value.isfinite(), case
            for gradient in found:
                assert gradient.dtype == dtype, case
                assert gradient.isfinite().all(), case


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16], ids=str)
def test_no_direction_means_no_gradient(dtype):
    first, second = HOSTILE["one zero row"](dtype)
    for margins in MARGINS:
        for name, _, found in gradients(first, second, 0.2, margins):
            assert (found[0][0] == 0).all(), (name, margins)


def test_a_row_without_direction_is_orthogonal_to_everything():
    """Its cosine with every key is 0, which is what plain normalisation of a zero row gives."""
    first, second = HOSTILE["one zero row"](torch.float64)
    plain = torch.nn.functional.normalize(first, dim=1)
    plain = plain @ torch.nn.functional.normalize(second, dim=1).t() / 0.2
    expected = torch.nn.functional.cross_entropy(plain, torch.arange(4)) * 0.4
    torch.testing.assert_close(mocov3_margin_loss_func(first, second), expected)


@pytest.mark.parametrize("scale", [1e-150, 1e-9, 1e9, 1e150])
def test_only_the_direction_counts(scale):
    """Length changes the gradient in proportion, and nothing else."""
    first, second = general(torch.float64), general(torch.float64).flip(0)
    margins = Margins(0.3, 0.2, 5.0, 1.0, 0.5)
    plain = list(gradients(first, second, 0.2, margins))
    scaled = list(gradients(first * scale, second * scale, 0.2, margins))
    for (name, value, found), (_, other, others) in zip(plain, scaled, strict=True):
        torch.testing.assert_close(other, value, msg=name)
        for one, two in zip(found, others, strict=True):
            torch.testing.assert_close(two * scale, one, rtol=1e-9, atol=1e-12, msg=name)


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_float16_cannot_hold_becomes_infinite(kind):
    """A gradient scaler must see it. It never becomes a NaN, and nothing else becomes infinite."""
    first, second = HOSTILE[kind](torch.float16)
    is_infinite = []
    for margins, temperature in itertools.product(MARGINS, TEMPERATURES):
        received = gradients(first, second, temperature, margins)
        exact = gradients(first.float(), second.float(), temperature, margins)
        for (name, _, found), (_, _, others) in zip(received, exact, strict=True):
            for one, other in zip(found, others, strict=True):
                case = (name, margins, temperature)
                assert not one.isnan().any(), case
                # What is as short as a denormal number has no direction in float16.
                too_large = (other.abs() > 65400) & (kind != "denormal")
                assert (one.isfinite() | too_large).all(), case
                assert (one.isinf() | (other.abs() < 65600) | (kind == "denormal")).all(), case
                is_infinite.append(one.isinf().any())
    if kind == "tiny":
        assert any(is_infinite)


@pytest.mark.parametrize("form", [mocov3_margin_loss_func, plain_mocov3])
def test_both_forms_overflow_in_float16_alone(form):
    """A row of length 1e-4 has a gradient beyond 65504 at s = 10,000."""
    for dtype in DTYPES:
        first = general(torch.float16).mul(1e-4).to(dtype).requires_grad_()
        second = general(torch.float16).flip(0).to(dtype)
        form(first, second, 0.2, Margins(positive_scale=1e4)).backward()
        assert first.grad.isinf().all() == (dtype == torch.float16)
        assert first.grad.isinf().any() == (dtype == torch.float16)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("margins", [Margins(), MARGINS[5], MARGINS[6]], ids=named)
def test_nan_comes_out_as_nan(dtype, rows, margins):
    first, second = general(dtype, rows), general(dtype, 2 * rows)[rows:]
    first[0, 0] = math.nan
    for name, value, found in gradients(first, second, 0.2, margins):
        assert value.isnan(), name
        assert found[0][0].isnan().any() or rows == 1, name


CERTAIN = {
    "generalized": lambda q, k, t, m: generalized_info_nce_loss_func(q, k, t, 1.0, m),
    "nnclr": nnclr_margin_loss_func,
    "deepclusterv2": lambda q, k, t, m: deepclusterv2_margin_loss_func(
        q, k, torch.arange(len(q)), t, m
    ),
}


@pytest.mark.parametrize("loss", CERTAIN)
@pytest.mark.parametrize("kind", ["I", "II"])
def test_full_attenuation_at_certainty_is_equation_15(kind, loss):
    """At q = 1 to the last digit, α = 1 leaves the positive's gradient at sin θ / τ."""
    first = torch.eye(4, 8, dtype=torch.float64)
    second = first + 0.01 * torch.eye(4, 8, dtype=torch.float64).roll(4, dims=1)
    temperature = 0.01
    row = first.clone().requires_grad_()
    margins = Margins(attenuation=1.0, attenuation_type=kind)
    CERTAIN[loss](row, second, temperature, margins).backward()
    sine = math.sin(math.atan(0.01))
    # Orthogonal negatives pull along other axes; along the positive's own the gradient is pure.
    along = row.grad.roll(-4, dims=1).diagonal()
    expected = torch.full((4,), -sine / temperature / 4, dtype=torch.float64)
    torch.testing.assert_close(along, expected, rtol=1e-9, atol=0)


def test_no_row_has_a_positive():
    z = general(torch.float64).requires_grad_()
    for loss in (simclr_margin_loss_func, simclr_debiased_loss_func):
        value = loss(z, torch.arange(4))
        value.backward()
        assert value == 0
        assert (z.grad == 0).all()


@pytest.mark.parametrize("prototypes", [1, 4])
def test_no_row_has_a_prototype(prototypes):
    for margins, temperature in itertools.product(MARGINS, TEMPERATURES):
        z = general(torch.float64).requires_grad_()
        value = deepclusterv2_margin_loss_func(
            z, general(torch.float64, prototypes), torch.full((4,), -1), temperature, margins
        )
        value.backward()
        assert value == 0, margins
        assert (z.grad == 0).all(), margins


@pytest.mark.parametrize("margins", MARGINS, ids=named)
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_one_prototype_is_certain(margins, temperature):
    """Without negatives the value is 0; the gradient is that of the positive or none."""
    z = general(torch.float64).requires_grad_()
    value = deepclusterv2_margin_loss_func(
        z, general(torch.float64, 5)[4:], torch.tensor([0, 0, -1, 0]), temperature, margins
    )
    value.backward()
    assert value == 0
    assert z.grad.isfinite().all()
    assert (z.grad[2] == 0).all()
    assert (z.grad[0] != 0).any() == (margins.attenuation == 1.0)


@pytest.mark.parametrize("rows", [3, 4])
def test_a_nan_is_in_no_band(rows):
    z = general(torch.float64, rows)
    z[0, 0] = math.nan
    loss, count = distance_polarization_with_count(z, 0.1, 0.9)
    assert loss.isnan()
    assert 0 <= count <= rows * (rows - 1)


def test_one_pair_far_below_every_negative():
    """Debiased negatives have a lowest value; here there are none, and the positive is below it."""
    z = general(torch.float32, 2).requires_grad_()
    ids = torch.zeros(2, dtype=torch.long)
    value = simclr_debiased_loss_func(z, ids, 0.5, 0.1, Margins(subtractive=1e4))
    value.backward()
    assert value == 0
    assert (z.grad == 0).all()


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_extreme_settings_stay_finite(scale):
    for margins in (
        Margins(positive_scale=scale, curvature=scale),
        Margins(angular=0.5, positive_scale=scale),
        Margins(subtractive=scale, curvature=scale, curve="root"),
        Margins(curvature=scale, curve="superellipse"),
    ):
        for kind in ("identical pairs", "opposite pairs", "mixed"):
            first, second = HOSTILE[kind](torch.float32)
            for name, value, found in gradients(first, second, 0.2, margins):
                assert value.isfinite(), (name, margins)
                assert all(gradient.isfinite().all() for gradient in found), (name, margins)


@pytest.mark.parametrize("temperature", [1e-4, 1e-20, 1e-32])
def test_tiny_temperatures_have_large_gradients(temperature):
    """Those by negatives are not cut off; a tiny scale leaves only them."""
    margins = Margins(positive_scale=1e-32)
    batches = general(torch.float32, 8).split(4)
    received = gradients(*batches, temperature, margins)
    expected = gradients(*(x.double() for x in batches), temperature, margins)
    for (name, _, found), (_, _, exact) in zip(received, expected, strict=True):
        # There the nearest column is the row itself, and gradients are nothing but rounding.
        if name.startswith(("mocov2plus", "deepclusterv2")):
            continue
        for one, other in zip(found, exact, strict=True):
            size = max(1e-6, other.abs().max().item())
            torch.testing.assert_close(
                one.double() / size, other / size, rtol=0, atol=1e-5, msg=name
            )


@pytest.mark.parametrize("temperature", [1e-40, 1e-300])
def test_temperatures_whose_inverse_float32_cannot_hold(temperature):
    for name, value, found in gradients(
        general(torch.float32), general(torch.float32).flip(0), temperature, Margins()
    ):
        assert value.shape == (), name
        assert all(gradient.shape == (4, 8) for gradient in found), name


@pytest.mark.parametrize("beta", [1e-300, 1e-50, 1e-30])
@pytest.mark.parametrize("rows", [1, 4])
def test_a_hardness_that_vanishes_in_float32(beta, rows):
    z = torch.cat([general(torch.float32, rows), general(torch.float32, rows).flip(1)])
    ids = torch.arange(rows).repeat(2)
    z.requires_grad_()
    hard = simclr_hard_negative_loss_func(z, ids, 0.5, 0.1, beta)
    plain = simclr_debiased_loss_func(z, ids, 0.5, 0.1)
    torch.testing.assert_close(hard, plain)
    torch.testing.assert_close(torch.autograd.grad(hard, z)[0], torch.autograd.grad(plain, z)[0])
