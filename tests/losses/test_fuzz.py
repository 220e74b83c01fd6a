"""Random calls of every loss."""

from hypothesis import given, settings
from loss_cases import cases, check

FEW = settings(max_examples=120, derandomize=True, deadline=None, database=None)


@FEW
@given(cases())
def test_every_promise_holds_for_any_call(case):
    check(case)
