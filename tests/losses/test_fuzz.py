"""Random calls of every loss; ``scripts/fuzz_losses.py`` makes many more of them."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_cases import cases, check

from solo_margins.losses import Margins, mocov3_margin_loss_func

FEW = settings(max_examples=120, derandomize=True, deadline=None, database=None)


@FEW
@given(cases())
def test_every_promise_holds_for_any_call(case):
    check(case)


NUMBERS = {
    "angular": (-math.pi / 2, math.pi, True),
    "subtractive": (0.0, math.inf, True),
    "positive_scale": (0.0, math.inf, False),
    "curvature": (0.0, math.inf, False),
    "attenuation": (0.0, 1.0, True),
}


@FEW
@given(
    st.sampled_from(sorted(NUMBERS)),
    st.one_of(st.floats(allow_nan=True, allow_infinity=True), st.text(), st.none(), st.booleans()),
)
def test_a_setting_is_taken_or_refused_by_its_name(name, value):
    low, high, with_low = NUMBERS[name]
    is_number = isinstance(value, float)
    allowed = is_number and (value > low or (with_low and value == low)) and value <= high
    if math.isinf(high) and name != "curvature":
        allowed = allowed and math.isfinite(value)
    if allowed:
        assert getattr(Margins(**{name: value}), name) == value
    else:
        with pytest.raises(ValueError, match=rf"^{name} must be "):
            Margins(**{name: value})


@FEW
@given(st.one_of(st.floats(max_value=0.0), st.just(math.nan), st.just(math.inf), st.text()))
def test_a_temperature_is_refused_by_its_name(temperature):
    import torch

    with pytest.raises(ValueError, match=r"^temperature must be "):
        mocov3_margin_loss_func(torch.eye(3), torch.eye(3), temperature)
