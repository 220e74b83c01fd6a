"""Random calls of the losses, and what must hold for each of them.

Used by the suite with a few cases and by ``scripts/fuzz_losses.py`` with many.
"""

import math
from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st
from naive_losses import (
    naive_assigned,
    naive_polarization,
    naive_positives_only,
    naive_query_key,
    naive_queue,
    naive_same_id,
)

from solo_margins import losses
from solo_margins.losses import Margins

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
VALUES = ("normal", "huge", "tiny", "zero rows", "equal rows", "opposite", "one axis", "integers")


@dataclass(frozen=True)
class Case:
    """One call of one loss."""

    loss: str
    rows: int
    width: int
    others: int
    dtype: torch.dtype
    values: str
    seed: int
    temperature: float
    margins: Margins
    tile_size: int | None
    beta: float
    tau_plus: float
    band: tuple[float, float]


def _margins(with_attenuation=True):
    positive = st.floats(1e-6, 1e6)
    return st.builds(
        Margins,
        angular=st.one_of(st.just(0.0), st.floats(0.0, math.pi)),
        subtractive=st.one_of(st.just(0.0), st.floats(0.0, 1e4)),
        positive_scale=st.one_of(st.just(1.0), positive),
        curvature=st.one_of(st.just(math.inf), positive),
        attenuation=st.one_of(st.just(0.0), st.just(1.0), st.floats(0.0, 1.0))
        if with_attenuation
        else st.just(0.0),
        attenuation_type=st.sampled_from(("I", "II")),
        curve=st.sampled_from(("power", "root")),
        beyond_pi=st.sampled_from(("cosine", "monotone")),
    )


@st.composite
def cases(draw):
    """Return a strategy for calls with any shape, dtype, setting and kind of values."""
    loss = draw(st.sampled_from(sorted(CALLS)))
    lower = draw(st.floats(0.01, 0.97))
    return Case(
        loss=loss,
        rows=draw(st.integers(1, 9)),
        width=draw(st.integers(1, 7)),
        others=draw(st.integers(1, 9)),
        dtype=draw(st.sampled_from(DTYPES)),
        values=draw(st.sampled_from(VALUES)),
        seed=draw(st.integers(0, 2**31)),
        temperature=10.0 ** draw(st.floats(-3.0, 2.0)),
        margins=draw(_margins(with_attenuation=loss not in WITHOUT_NEGATIVES)),
        tile_size=draw(st.one_of(st.none(), st.integers(1, 20))),
        beta=draw(st.one_of(st.just(0.0), st.floats(0.0, 3.0))),
        tau_plus=draw(st.one_of(st.just(0.0), st.floats(0.0, 0.9))),
        band=(lower, draw(st.floats(lower + 0.01, 0.99))),
    )


def _vectors(case, rows, salt):
    generator = torch.Generator().manual_seed((case.seed + salt) % 2**31)
    found = torch.randn(rows, case.width, generator=generator, dtype=torch.float64)
    largest = torch.finfo(case.dtype).max
    if case.values == "huge":
        found = found.sign() * found.abs().clamp(0.1, 1.0) * largest
    elif case.values == "tiny":
        found = found * torch.finfo(case.dtype).smallest_normal
    elif case.values == "zero rows":
        found = found * (torch.arange(rows) % 2).unsqueeze(1)
    elif case.values == "equal rows":
        found = found[:1].expand(rows, -1)
    elif case.values == "opposite":
        found = found[:1] * (1 - 2 * (torch.arange(rows) % 2)).unsqueeze(1)
    elif case.values == "one axis":
        found = torch.zeros_like(found)
        found[:, 0] = 1.0
    elif case.values == "integers":
        found = found.round()
    return found.to(case.dtype)


def _assignments(case):
    generator = torch.Generator().manual_seed(case.seed % 2**31)
    return torch.randint(-1, case.others, (case.rows,), generator=generator)


def _labels(case):
    return _assignments(case) // 2


# Each takes the case, two batches and margins, and returns the loss.
CALLS = {
    "mocov3": lambda c, a, b, m: losses.mocov3_margin_loss_func(
        a, b, c.temperature, m, c.tile_size
    ),
    "nnclr": lambda c, a, b, m: losses.nnclr_margin_loss_func(b, a, c.temperature, m),
    "generalized": lambda c, a, b, m: losses.generalized_info_nce_loss_func(
        a, b, c.temperature, min(c.beta, 1.0), m
    ),
    "simclr": lambda c, a, b, m: losses.simclr_margin_loss_func(
        torch.cat([a, b]), torch.arange(c.rows).repeat(2), c.temperature, m, c.tile_size
    ),
    "labels": lambda c, a, b, m: losses.simclr_margin_loss_func(
        a, _labels(c), c.temperature, m, c.tile_size
    ),
    "debiased": lambda c, a, b, m: losses.simclr_debiased_loss_func(
        torch.cat([a, b]), torch.arange(c.rows).repeat(2), c.temperature, c.tau_plus, m
    ),
    "hard": lambda c, a, b, m: losses.simclr_hard_negative_loss_func(
        torch.cat([a, b]), torch.arange(c.rows).repeat(2), c.temperature, c.tau_plus, c.beta, m
    ),
    "queue": lambda c, a, b, m: losses.mocov2plus_margin_loss_func(
        a, b, _vectors(c, c.others, 2).t(), c.temperature, m
    ),
    "prototypes": lambda c, a, b, m: losses.deepclusterv2_margin_loss_func(
        a, _vectors(c, c.others, 2), _assignments(c), c.temperature, m
    ),
    "byol": lambda c, a, b, m: losses.byol_curv_loss_func(a, b, m),
    "simsiam": lambda c, a, b, m: losses.simsiam_curv_loss_func(a, b, m),
    "polarization": lambda c, a, b, m: losses.distance_polarization_loss_func(
        torch.cat([a, b]), *c.band, c.tile_size
    ),
}
WITHOUT_NEGATIVES = ("byol", "simsiam", "polarization")

NAIVE = {
    "mocov3": lambda c, a, b, m: 2 * c.temperature * naive_query_key(a, b, c.temperature, m),
    "nnclr": lambda c, a, b, m: naive_query_key(b, a, c.temperature, m),
    "generalized": lambda c, a, b, m: naive_query_key(a, b, c.temperature, m, min(c.beta, 1.0)),
    "simclr": lambda c, a, b, m: naive_same_id(
        torch.cat([a, b]), torch.arange(c.rows).repeat(2), c.temperature, m
    ),
    "queue": lambda c, a, b, m: naive_queue(a, b, _vectors(c, c.others, 2).t(), c.temperature, m),
    "prototypes": lambda c, a, b, m: naive_assigned(
        a, _vectors(c, c.others, 2), _assignments(c), c.temperature, m
    ),
    "byol": lambda c, a, b, m: naive_positives_only(a, b, m),
    "polarization": lambda c, a, b, m: naive_polarization(torch.cat([a, b]), *c.band),
}


def check(case):
    """Raise ``AssertionError`` unless everything that is promised holds for a call."""
    call = CALLS[case.loss]
    first, second = _vectors(case, case.rows, 0), _vectors(case, case.rows, 1)
    before = first.clone(), second.clone()
    first.requires_grad_()
    second.requires_grad_()
    value = call(case, first, second, case.margins)
    assert value.shape == ()
    assert value.dtype == (torch.float64 if case.dtype == torch.float64 else torch.float32)
    assert value.isfinite(), f"value {value}"
    if value.requires_grad:
        found = torch.autograd.grad(value, (first, second), allow_unused=True)
        for gradient, vectors in zip(found, (first, second), strict=True):
            if gradient is not None:
                assert gradient.dtype == vectors.dtype
                assert gradient.shape == vectors.shape
                assert gradient.isfinite().all(), "gradient"
    assert torch.equal(first.detach(), before[0])
    assert torch.equal(second.detach(), before[1])

    # Scale, curvature and attenuation change gradients alone.
    quiet = replace(case.margins, positive_scale=1.0, curvature=math.inf, attenuation=0.0)
    with torch.no_grad():
        assert torch.equal(call(case, first, second, quiet), value.detach())
        other = replace(case, tile_size=None if case.tile_size else 1)
        again = call(other, first, second, case.margins)
    tolerance = 1e-9 if case.dtype == torch.float64 else 1e-4
    size = 1.0 + 1.0 / case.temperature
    assert abs(again - value) <= tolerance * (abs(value) + size), f"tiles {again} {value}"
    _compare_with_naive(case, before, value)


def _compare_with_naive(case, vectors, value):
    """Ordinary vectors in float64 are within the reach of the papers' formulas as written."""
    ordinary = case.dtype == torch.float64 and case.values == "normal" and case.width > 1
    if not ordinary or case.loss not in NAIVE or case.rows < 2 or case.temperature < 0.02:
        return
    if case.loss == "prototypes" and (case.others < 2 or bool((_assignments(case) < 0).all())):
        return
    with torch.no_grad():
        expected = NAIVE[case.loss](case, *vectors, case.margins)
    assert abs(expected - value) <= 1e-6 * (1.0 + abs(expected)), f"naive {expected} {value}"
