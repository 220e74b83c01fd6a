"""Random calls of the losses, and what must hold for each of them."""

import math
from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st
from loss_calls import (
    OF_BOTH_VIEWS,
    PLAIN,
    PUBLIC,
    TILED,
    Settings,
    assert_same,
    focal,
    takes,
)

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
    settings: Settings
    by_row: bool = False  # whether each row has margins of its own


def _margins(with_attenuation=True):
    positive = st.floats(1e-6, 1e6)
    return st.builds(
        Margins,
        angular=st.one_of(st.just(0.0), st.floats(-math.pi / 2, math.pi)),
        subtractive=st.one_of(st.just(0.0), st.floats(0.0, 1e4)),
        positive_scale=st.one_of(st.just(1.0), positive),
        curvature=st.one_of(st.just(math.inf), positive),
        attenuation=st.one_of(st.just(0.0), st.just(1.0), st.floats(0.0, 1.0))
        if with_attenuation
        else st.just(0.0),
        attenuation_type=st.sampled_from(("I", "II")),
        curve=st.sampled_from(("power", "root", "superellipse")),
        beyond_pi=st.sampled_from(("cosine", "monotone")),
        scaling=st.sampled_from((None, None, focal)),
    )


def _by_row(margins, rows):
    """Return margins of which each row has its own."""
    share = torch.linspace(0.1, 1.0, rows)
    return replace(
        margins,
        angular=margins.angular * share,
        subtractive=margins.subtractive * share,
        positive_scale=margins.positive_scale * share,
    )


@st.composite
def _temperatures(draw):
    number = 10.0 ** draw(st.floats(-3.0, 2.0))
    return draw(st.sampled_from((number, torch.tensor(number))))


@st.composite
def cases(draw):
    """Return a strategy for calls with any shape, dtype, setting and kind of values."""
    loss = draw(st.sampled_from(sorted(PUBLIC)))
    lower = draw(st.floats(0.01, 0.97))
    return Case(
        loss=loss,
        rows=draw(st.integers(1, 9)),
        width=draw(st.integers(1, 7)),
        others=draw(st.integers(1, 9)),
        dtype=draw(st.sampled_from(DTYPES)),
        values=draw(st.sampled_from(VALUES)),
        seed=draw(st.integers(0, 2**31)),
        by_row=draw(st.booleans()),
        settings=Settings(
            temperature=draw(_temperatures()),
            margins=draw(_margins(with_attenuation=takes(loss, Margins(attenuation=1.0)))),
            tile_size=draw(st.one_of(st.none(), st.integers(1, 20))),
            negatives_weight=draw(st.one_of(st.just(0.0), st.floats(0.0, 1.0))),
            tau_plus=draw(st.one_of(st.just(0.0), st.floats(0.0, 0.9))),
            beta=draw(st.one_of(st.just(0.0), st.floats(0.0, 3.0))),
            mean=draw(st.floats(-1.0, 1.0)),
            width=10.0 ** draw(st.floats(-3.0, 3.0)),
            band=(lower, draw(st.floats(lower + 0.01, 0.99))),
        ),
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


def _inputs(case):
    """Return two batches and the settings of a case."""
    generator = torch.Generator().manual_seed(case.seed % 2**31)
    margins = case.settings.margins
    if case.by_row:
        rows = 2 * case.rows if case.loss in OF_BOTH_VIEWS else case.rows
        margins = _by_row(margins, rows)
    settings = replace(
        case.settings,
        margins=margins,
        assignments=torch.randint(-1, case.others, (case.rows,), generator=generator),
        others=_vectors(case, case.others, 2),
    )
    return _vectors(case, case.rows, 0), _vectors(case, case.rows, 1), settings


def _value_and_gradients(loss, first, second, settings):
    """Return value and gradients of a call after a look at dtypes, shapes and finiteness."""
    inputs = [first.clone().requires_grad_(), second.clone().requires_grad_()]
    value = loss(*inputs, settings)
    assert value.shape == ()
    assert value.dtype == (torch.float64 if first.dtype == torch.float64 else torch.float32)
    assert value.isfinite(), f"value {value}"
    found = torch.autograd.grad(value, inputs, allow_unused=True)
    for gradient, vectors, before in zip(found, inputs, (first, second), strict=True):
        assert torch.equal(vectors.detach(), before)
        if gradient is not None:
            assert gradient.dtype == vectors.dtype
            assert gradient.shape == vectors.shape
            assert not gradient.isnan().any(), "gradient"
            # A gradient scaler must see what float16 cannot hold.
            assert gradient.isfinite().all() or gradient.dtype == torch.float16, "gradient"
    return value.detach(), *found


def check(case):
    """Raise ``AssertionError`` unless everything that is promised holds for a call."""
    first, second, settings = _inputs(case)
    call = PUBLIC[case.loss]
    received = _value_and_gradients(call, first, second, settings)
    value = received[0]
    # Scale, curvature and attenuation change gradients alone.
    effects = {"curvature": math.inf, "attenuation": 0.0, "scaling": None}
    quiet = replace(settings.margins, positive_scale=1.0, **effects)
    with torch.no_grad():
        assert torch.equal(call(first, second, replace(settings, margins=quiet)), value)
        again = TILED[case.loss](first, second, settings)
    tolerance = 1e-9 if case.dtype == torch.float64 else 1e-4
    size = 1.0 + 1.0 / float(settings.temperature)
    assert abs(again - value) <= tolerance * (abs(value) + size), f"tiles {again} {value}"
    plain = _value_and_gradients(PLAIN[case.loss], first, second, settings)
    if case.dtype == torch.float64 and case.values == "normal" and case.width > 1:
        assert_same(received, plain, 1e-6, "plain form")
