"""The shipped losses against the papers' algorithms as written, angles by arccos (identity 6)."""

from dataclasses import replace

import pytest
import torch
from loss_calls import (
    OWN_MARGINS,
    PUBLIC,
    SOME_MARGINS,
    Settings,
    assert_same,
    every_effect,
    margins_by_row,
    takes,
    value_and_gradients,
    vectors,
)
from naive_losses import NAIVE

from solo_margins.losses import Margins

ASSIGNMENTS = torch.tensor([2, -1, 0, 6, 1, 2, -1, 5, 4])


def settings_of(name):
    """Return settings with all margins, and with other values for the rest of them."""
    base = Settings(assignments=ASSIGNMENTS, others=vectors(11, 2))
    others = [
        {"temperature": 0.02, "negatives_weight": 0.0, "tau_plus": 0.6, "beta": 0.5},
        {"temperature": 0.5, "negatives_weight": 1.5, "tau_plus": 0.0, "mean": -0.5, "width": 2.0},
        {"tau_plus": 0.9, "mean": 0.9, "width": 0.1},  # where the floor of negatives is reached
        {"ids": torch.tensor([3, 3, 7, 3, 9, 9, 7, -2, 5]), "band": (0.3, 0.5)},
    ]
    for margins in (*SOME_MARGINS, *OWN_MARGINS, *margins_by_row(name, 9)):
        if takes(name, margins):
            yield replace(base, margins=margins)
    for other in others:
        for margins in (Margins(), every_effect(name, 9)):
            yield replace(base, margins=margins, **other)


@pytest.mark.parametrize("name", PUBLIC)
def test_value_and_gradients_are_those_of_the_papers_form(name):
    batches = vectors(9, 0), vectors(9, 1)
    for s in settings_of(name):
        received, expected = (
            value_and_gradients(lambda a, b, s=s, form=form: form[name](a, b, s), *batches)
            for form in (PUBLIC, NAIVE)
        )
        assert_same(received, expected, message=s)
