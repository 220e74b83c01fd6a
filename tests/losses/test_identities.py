"""The identities that hold between margins, gradient scalings and plain contrastive losses."""

import math

import pytest
import torch
import torch.nn.functional as F

from solo_margins.losses import (
    Margins,
    byol_curv_loss_func,
    deepclusterv2_margin_loss_func,
    generalized_info_nce_loss_func,
    mocov2plus_margin_loss_func,
    mocov3_margin_loss_func,
    nnclr_margin_loss_func,
    simclr_debiased_loss_func,
    simclr_hard_negative_loss_func,
    simclr_margin_loss_func,
    simsiam_curv_loss_func,
)

TAU = 0.2
ROWS = 8
INDEXES = torch.arange(ROWS // 2).repeat(2)
ASSIGNMENTS = torch.tensor([5, 0, -1, 7, 5, 2, -1, 1])
SCALINGS = [
    Margins(positive_scale=20.0),
    Margins(curvature=0.7),
    Margins(curvature=2.5, curve="root"),
    Margins(curvature=0.7, curve="superellipse"),
    Margins(attenuation=0.25),
    Margins(attenuation=1.0, attenuation_type="II"),
    Margins(positive_scale=5.0, curvature=1.0, attenuation=0.9),
]


@pytest.fixture(params=[torch.float64, torch.float32], ids=str)
def dtype(request):
    return request.param


@pytest.fixture
def close(dtype):
    tolerance = {torch.float64: 1e-9, torch.float32: 1e-5}[dtype]

    def check(received, expected):
        scale = max(1.0, float(expected.abs().max()))
        torch.testing.assert_close(received / scale, expected / scale, rtol=0, atol=tolerance)

    return check


@pytest.fixture
def query(dtype):
    return torch.randn(ROWS, 5, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.fixture
def key(dtype):
    return torch.randn(ROWS, 5, generator=torch.Generator().manual_seed(1)).to(dtype)


def gradient(loss, x):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(loss(x), x)[0]


def losses_of_one_input(key, **settings):
    """Return every loss that takes all margins, as a function of one tensor."""
    margins = Margins(**settings)
    return {
        "mocov3": lambda x: mocov3_margin_loss_func(x, key, TAU, margins),
        "simclr": lambda x: simclr_margin_loss_func(x, INDEXES, TAU, margins),
        "generalized": lambda x: generalized_info_nce_loss_func(x, key, TAU, 0.5, margins),
        "debiased": lambda x: simclr_debiased_loss_func(x, INDEXES, TAU, 0.1, margins),
        "hard": lambda x: simclr_hard_negative_loss_func(x, INDEXES, TAU, 0.1, 1.0, margins),
        "mocov2plus": lambda x: mocov2plus_margin_loss_func(x, key, key[3:].t(), TAU, margins),
        "nnclr": lambda x: nnclr_margin_loss_func(key, x, TAU, margins),
        "deepclusterv2": lambda x: deepclusterv2_margin_loss_func(
            x, key, ASSIGNMENTS, TAU, margins
        ),
    }


INFO_NCE = ("mocov3", "simclr", "mocov2plus", "nnclr", "deepclusterv2")


# 1. Default margins equal the host's own losses.


def plain_mocov3(query, key):
    logits = F.normalize(query, dim=1) @ F.normalize(key, dim=1).t() / TAU
    return F.cross_entropy(logits, torch.arange(len(query))) * 2 * TAU


def plain_simclr(z):
    z = F.normalize(z, dim=1)
    similarity = (z @ z.t() / TAU).exp()
    same = INDEXES.unsqueeze(0) == INDEXES.unsqueeze(1)
    positive = (similarity * (same & ~torch.eye(len(z), dtype=torch.bool))).sum(dim=1)
    negative = (similarity * ~same).sum(dim=1)
    return -(positive / (positive + negative)).log().mean()


def plain_byol(p, z):
    return 2 - 2 * F.cosine_similarity(p, z, dim=1).mean()


def plain_queue(query, key, queue):
    query, key, queue = (F.normalize(x, dim=1) for x in (query, key, queue))
    positive = (query * key).sum(dim=1, keepdim=True)
    logits = torch.cat([positive, query @ queue.t()], dim=1) / TAU
    return F.cross_entropy(logits, torch.zeros(len(query), dtype=torch.long))


def plain_prototypes(z, prototypes):
    logits = F.normalize(z, dim=1) @ F.normalize(prototypes, dim=1).t() / TAU
    return F.cross_entropy(logits, ASSIGNMENTS, ignore_index=-1)


def test_default_margins_are_the_plain_losses(query, key, close):
    pairs = [
        (lambda x: mocov3_margin_loss_func(x, key, TAU), lambda x: plain_mocov3(x, key)),
        (lambda x: mocov3_margin_loss_func(query, x, TAU), lambda x: plain_mocov3(query, x)),
        (lambda x: simclr_margin_loss_func(x, INDEXES, TAU), plain_simclr),
        (lambda x: byol_curv_loss_func(x, key), lambda x: plain_byol(x, key)),
        (lambda x: simsiam_curv_loss_func(x, key), lambda x: plain_byol(x, key) / 2 - 1),
        (
            lambda x: mocov2plus_margin_loss_func(x, key, key[3:].t(), TAU),
            lambda x: plain_queue(x, key, key[3:]),
        ),
        (
            lambda x: nnclr_margin_loss_func(key, x, TAU),
            lambda x: plain_mocov3(key, x) / (2 * TAU),
        ),
        (
            lambda x: deepclusterv2_margin_loss_func(x, key, ASSIGNMENTS, TAU),
            lambda x: plain_prototypes(x, key),
        ),
    ]
    for ours, plain in pairs:
        close(ours(query), plain(query))
        close(gradient(ours, query), gradient(plain, query))


# 2. Scale, curvature and attenuation leave the value alone.


@pytest.mark.parametrize("scaling", SCALINGS, ids=str)
def test_scalings_change_the_gradient_and_not_the_value(scaling, query, key):
    without = losses_of_one_input(key)
    for name, loss in losses_of_one_input(key, **vars(scaling)).items():
        assert torch.equal(loss(query), without[name](query)), name
        change = (gradient(loss, query) - gradient(without[name], query)).abs().max()
        assert change > 1e-4, name
    if scaling.attenuation == 0.0:
        for loss in (byol_curv_loss_func, simsiam_curv_loss_func):
            assert torch.equal(loss(query, key, scaling), loss(query, key))


# 3. Type I attenuation with α = 1 - exp(-m2/τ) has the gradient of the subtractive margin.


@pytest.mark.parametrize("subtractive", [0.05, 0.4, 2.0])
def test_attenuation_is_the_subtractive_margin(subtractive, query, key, close):
    alpha = 1 - math.exp(-subtractive / TAU)
    margin = losses_of_one_input(key, subtractive=subtractive)
    attenuated = losses_of_one_input(key, attenuation=alpha)
    several = torch.arange(ROWS) % 3  # groups of 3, 3 and 2: several positives in a row
    for name in INFO_NCE:
        close(gradient(attenuated[name], query), gradient(margin[name], query))
    close(
        gradient(
            lambda x: simclr_margin_loss_func(x, several, TAU, Margins(attenuation=alpha)), query
        ),
        gradient(
            lambda x: simclr_margin_loss_func(x, several, TAU, Margins(subtractive=subtractive)),
            query,
        ),
    )


# 4 and 5 look at single entries: with keys along the axes and a query in general position, the
# gradient by the query is a sum of one tangent for each entry. Solving for the coefficients gives
# back ∂L/∂cos entry by entry.


def among_others(loss):
    """Make the loss of one row of a loss that needs as many rows as columns."""
    return lambda row, others, keys, *settings: (
        loss(torch.cat([row, others]), keys, *settings) * len(keys)
    )


ONE_ROW = {
    "mocov3": among_others(lambda q, k, t, m: mocov3_margin_loss_func(q, k, t, m) / (2 * t)),
    "generalized": among_others(lambda q, k, t, m: generalized_info_nce_loss_func(q, k, t, 1.0, m)),
    "nnclr": among_others(nnclr_margin_loss_func),
    "mocov2plus": lambda row, _, keys, *settings: mocov2plus_margin_loss_func(
        row, keys[:1], keys[1:].t(), *settings
    ),
    "deepclusterv2": lambda row, _, keys, *settings: deepclusterv2_margin_loss_func(
        row, keys, torch.tensor([0]), *settings
    ),
}


@pytest.fixture(params=ONE_ROW)
def by_cosine(request):
    """Return a function of margins, queries and keys that gives ∂L/∂cos θ_0j and cos θ_0j."""
    return lambda *arguments: solve_for_cosines(ONE_ROW[request.param], *arguments)


def solve_for_cosines(loss, margins, query, keys):
    """Return ∂L/∂cos θ_0j of one row, by least squares over the tangents of all entries."""
    keys = F.normalize(keys, dim=1)
    row = gradient(lambda x: loss(x, query[1:], keys, TAU, margins), query[:1])[0]
    length = query[0].norm()
    unit = query[0] / length
    tangents = (keys - (keys @ unit).unsqueeze(1) * unit) / length
    return torch.linalg.lstsq(tangents.t(), row, driver="gelsd").solution, keys @ unit


@pytest.fixture
def wide():
    """Return fewer keys than dimensions, so that the coefficients are unique."""
    generator = torch.Generator().manual_seed(2)
    return (
        torch.randn(5, 16, dtype=torch.float64, generator=generator),
        torch.randn(5, 16, dtype=torch.float64, generator=generator),
    )


@pytest.mark.parametrize(
    ("scale", "curvature", "curve"),
    [
        (20.0, math.inf, "power"),
        (1.0, 0.7, "power"),
        (0.5, 2.5, "root"),
        (20.0, 0.7, "root"),
        (20.0, 0.7, "superellipse"),
        (1.0, 2.5, "superellipse"),
    ],
)
def test_scale_and_curve_multiply_positives_alone(scale, curvature, curve, wide, by_cosine):
    plain, cosine = by_cosine(Margins(), *wide)
    scaled, _ = by_cosine(Margins(0, 0, scale, curvature, curve=curve), *wide)
    share = cosine[0].acos() / math.pi
    weight = {
        "power": 1 - share**curvature,
        "root": (1 - share) ** (1 / curvature),
        "superellipse": (1 - share**curvature) ** (1 / curvature),
    }[curve]
    torch.testing.assert_close(scaled[0], plain[0] * scale * weight, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(scaled[1:], plain[1:], rtol=1e-9, atol=1e-9)


def test_the_curves_agree_where_the_curvature_is_one_and_differ_elsewhere():
    angle = torch.tensor([math.pi / 4], dtype=torch.float64)
    rounded = {
        c: [
            round(Margins(curvature=c, curve=curve).angle_weight(angle).item(), 2)
            for curve in ("power", "root", "superellipse")
        ]
        for c in (1 / 3, 0.7, 1.0)
    }
    assert rounded == {1 / 3: [0.37, 0.42, 0.05], 0.7: [0.62, 0.66, 0.51], 1.0: [0.75] * 3}


@pytest.mark.parametrize(("angular", "subtractive"), [(0.3, 0.0), (0.0, 0.4), (1.2, 0.4)])
def test_equation_12_entry_by_entry(angular, subtractive, wide, by_cosine):
    plain, cosine = by_cosine(Margins(), *wide)
    margined, _ = by_cosine(Margins(angular, subtractive), *wide)
    angle = cosine.acos()
    target = torch.zeros_like(angle)
    target[0] = 1.0
    q = (angle.cos() / TAU).softmax(dim=0)
    shifted = ((angle + angular * target).cos() - subtractive * target) / TAU
    ratio = (target - shifted.softmax(dim=0)) / (target - q)
    ratio = ratio * (angle + angular * target).sin() / angle.sin()
    torch.testing.assert_close(margined, plain * ratio, rtol=1e-9, atol=1e-9)


def test_equations_14_and_15(wide, by_cosine):
    plain, cosine = by_cosine(Margins(), *wide)
    q = (cosine / TAU).softmax(dim=0)[0]
    margined, _ = by_cosine(Margins(subtractive=0.3), *wide)
    factor = 1 / (1 - (1 - math.exp(-0.3 / TAU)) * q)
    torch.testing.assert_close(margined, plain * factor, rtol=1e-9, atol=1e-9)
    limit, _ = by_cosine(Margins(attenuation=1.0), *wide)
    torch.testing.assert_close(limit[0].item(), -1 / TAU, rtol=1e-9, atol=0)


def test_type_two_attenuates_the_positive_alone(wide, by_cosine):
    plain, cosine = by_cosine(Margins(), *wide)
    q = (cosine / TAU).softmax(dim=0)[0]
    scaled, _ = by_cosine(Margins(attenuation=0.8, attenuation_type="II"), *wide)
    torch.testing.assert_close(scaled[0], plain[0] / (1 - 0.8 * q), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(scaled[1:], plain[1:], rtol=1e-9, atol=1e-9)


# 6, the arccos form, is the whole of test_against_naive.py; 8, several processes, of
# test_distributed.py. 7 follows, with the hostile inputs in test_hostile_inputs.py.


@pytest.mark.parametrize(
    "margins",
    [
        Margins(angular=0.5, subtractive=0.4),
        Margins(angular=2.5, subtractive=0.1),
        Margins(angular=2.5, beyond_pi="monotone"),
    ],
    ids=str,
)
def test_gradcheck(margins):
    query = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    key = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    query.requires_grad_()
    key.requires_grad_()
    ids = torch.tensor([0, 1, 2, 0, 1, 0])
    check = torch.autograd.gradcheck
    assert check(lambda q, k: mocov3_margin_loss_func(q, k, TAU, margins), (query, key))
    assert check(lambda q, k: generalized_info_nce_loss_func(q, k, TAU, 0.4, margins), (query, key))
    assert check(lambda x: simclr_margin_loss_func(x, ids, TAU, margins), query)
    assert check(lambda x: simclr_margin_loss_func(x, ids, 0.01, margins), query)
    assert check(lambda x: simclr_debiased_loss_func(x, ids, TAU, 0.1, margins), query)
    assert check(lambda x: simclr_hard_negative_loss_func(x, ids, TAU, 0.1, 1.5, margins), query)
    assert check(lambda x: byol_curv_loss_func(x, key.detach(), margins), query)
    assert check(lambda x: simsiam_curv_loss_func(x, key.detach(), margins), query)
    assert check(lambda nn, p: nnclr_margin_loss_func(nn, p, TAU, margins), (query, key))
    fixed = key.detach()
    assert check(lambda x: mocov2plus_margin_loss_func(x, fixed, fixed.t(), TAU, margins), query)
    assert check(lambda x: deepclusterv2_margin_loss_func(x, fixed, ids - 1, TAU, margins), query)
