"""Warnings come once, when there is a reason, and name what to change."""

import math

import pytest
import torch

from solo_margins.lens.measures import Measured, measure
from solo_margins.lens.signs import PATIENCE, Signs
from solo_margins.losses import Margins, mocov3_margin_loss_func
from solo_margins.losses.capture import capture


def healthy(**changes):
    scalars = {
        "loss": 1.0,
        "effective_rank": 20.0,
        "angle_separation": 0.95,
        "effective_scale": 1.0,
        "saturated_q": 0.1,
        "silenced_positives": 0.0,
    }
    margins = changes.pop("margins", Margins())
    return Measured({**scalars, **changes}, {}, margins, 0.2, 128)


def told(signs, measured, times=1, **where):
    return [sign for _ in range(times) for sign in signs.look(measured, **where)]


def test_a_healthy_training_is_left_in_peace():
    assert told(Signs(), healthy(), times=50) == []


@pytest.mark.parametrize(
    ("changes", "name", "parts"),
    [
        (
            {"loss": math.log(128) - 0.01},
            "collapse_loss",
            ["4.84", "among 128 images", "lower optimizer.lr"],
        ),
        (
            {"loss": 4.9, "margins": Margins(positive_scale=20.0)},
            "collapse_loss",
            ["lower method_kwargs.margins.positive_scale (now 20)", "schedule"],
        ),
        ({"effective_rank": 1.2}, "collapse_rank", ["is 1.2"]),
        (
            {"angle_separation": 0.51, "margins": Margins(attenuation=0.99)},
            "collapse_angles",
            ["0.51", "lower method_kwargs.margins.attenuation (now 0.99)"],
        ),
    ],
)
def test_a_collapse_is_told_once_it_lasts(changes, name, parts):
    signs = Signs()
    assert told(signs, healthy(**changes), times=PATIENCE - 1) == []
    [(found, text)] = told(signs, healthy(**changes))
    assert found == name
    assert all(part in text for part in parts), text
    assert "\n" not in text
    assert told(signs, healthy(**changes), times=20) == []


def test_a_short_dip_is_no_collapse():
    signs = Signs()
    for _ in range(5):
        assert told(signs, healthy(angle_separation=0.5), times=PATIENCE - 1) == []
        assert told(signs, healthy()) == []


def test_how_training_begins_is_no_collapse():
    signs = Signs(grace_epochs=3.0)
    at_chance = healthy(loss=4.9, angle_separation=0.5)
    assert told(signs, at_chance, times=30, epoch=2.9) == []
    names = {name for name, _ in told(signs, at_chance, times=PATIENCE, epoch=3.0)}
    assert names == {"collapse_loss", "collapse_angles"}


def test_a_rank_that_falls():
    signs = Signs()
    assert told(signs, healthy(effective_rank=60.0), times=9) == []
    [(name, text)] = told(signs, healthy(effective_rank=12.0), times=PATIENCE)
    assert name == "collapse_rank"
    assert "12.0" in text
    assert "60.0" in text


@pytest.mark.parametrize(
    ("changes", "name", "parts"),
    [
        (
            {"effective_scale": 80.0, "margins": Margins(positive_scale=80.0)},
            "exploding_scale",
            ["by 80", "lower method_kwargs.margins.positive_scale (now 80)"],
        ),
        (
            {"effective_scale": 500.0, "margins": Margins(attenuation=0.999)},
            "exploding_scale",
            ["by 500", "lower method_kwargs.margins.attenuation (now 0.999)"],
        ),
        (
            {"saturated_q": 0.97},
            "saturated_q",
            ["97%", "raise method_kwargs.margins.attenuation", "temperature (now 0.2)"],
        ),
        (
            {"silenced_positives": 0.8, "margins": Margins(curvature=0.1)},
            "silenced_positives",
            ["80%", "raise method_kwargs.margins.curvature (now 0.1)"],
        ),
    ],
)
def test_settings_that_do_harm(changes, name, parts):
    signs = Signs()
    [(found, text)] = told(signs, healthy(**changes), times=5)
    assert found == name
    assert all(part in text for part in parts), text


def test_collapsed_vectors_are_recognised():
    """All images at one place, as a collapsed network has them."""
    generator = torch.Generator().manual_seed(0)
    place = torch.ones(64, 16) + 1e-4 * torch.randn(64, 16, generator=generator)
    other = torch.ones(64, 16) + 1e-4 * torch.randn(64, 16, generator=generator)
    with capture() as seen:
        mocov3_margin_loss_func(place, other, 0.2)
    collapsed = measure(seen, features=place)
    names = {name for name, _ in told(Signs(), collapsed, times=PATIENCE)}
    assert names == {"collapse_loss", "collapse_rank", "collapse_angles"}
