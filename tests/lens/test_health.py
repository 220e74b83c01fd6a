"""Warnings come once, when there is a reason, and name what to change."""

import math
from dataclasses import asdict

import pytest
import torch

from solo_margins.lens.capture import StepCapture
from solo_margins.lens.health import PATIENCE, HealthChecks
from solo_margins.lens.measures import measure
from solo_margins.lens.records import Observation
from solo_margins.losses import Margins, mocov3_margin_loss_func
from solo_margins.losses.capture import capture

PLAIN = Margins()
LASTING = PATIENCE["collapse_loss"]


def healthy(epoch=math.inf, margins=PLAIN, **changes):
    scalars = {
        "loss": 1.0,
        "chance_loss": math.log(128),
        "effective_rank": 20.0,
        "angle_separation": 0.95,
        "effective_scale": 1.0,
        "saturated_q": 0.1,
        "silenced_positives": 0.0,
    }
    return Observation(0, epoch, {**scalars, **changes}, margins=asdict(margins))


def warnings(checks, seen, times=1):
    return [warning for _ in range(times) for warning in checks.check(seen)]


@pytest.mark.parametrize("seen", [healthy(), Observation(0, math.inf, {}), healthy(loss=math.nan)])
def test_a_healthy_run_is_left_in_peace(seen):
    assert warnings(HealthChecks(), seen, times=50) == []


@pytest.mark.parametrize(
    ("changes", "name", "parts"),
    [
        (
            {"loss": math.log(128) - 0.01},
            "collapse_loss",
            ["4.84", "among 128 images", "lower optimizer.lr or lengthen its warm-up"],
        ),
        (
            {"loss": 4.9, "margins": Margins(positive_scale=20.0)},
            "collapse_loss",
            ["lower method_kwargs.margins.positive_scale (now 20)", "schedule"],
        ),
        ({"effective_rank": 1.2}, "collapse_rank", ["is 1.2", "lower optimizer.lr"]),
        (
            {"angle_separation": 0.51, "margins": Margins(attenuation=0.99)},
            "collapse_angles",
            ["0.51", "lower method_kwargs.margins.attenuation (now 0.99)"],
        ),
    ],
)
def test_a_collapse_is_told_once_it_lasts(changes, name, parts):
    checks = HealthChecks()
    assert warnings(checks, healthy(**changes), times=LASTING - 1) == []
    [(found, text)] = warnings(checks, healthy(**changes))
    assert found == name
    assert all(part in text for part in parts), text
    assert "\n" not in text
    assert warnings(checks, healthy(**changes), times=20) == []


@pytest.mark.parametrize("margins", [Margins(angular=0.1), Margins(subtractive=0.1)])
def test_margins_in_the_logits_raise_the_loss_of_chance(margins):
    assert warnings(HealthChecks(), healthy(loss=9.0, margins=margins), times=20) == []


def test_a_short_dip_is_not_a_collapse():
    checks = HealthChecks()
    for _ in range(5):
        assert warnings(checks, healthy(angle_separation=0.5), times=LASTING - 1) == []
        assert warnings(checks, healthy()) == []


def test_how_training_begins_is_not_a_collapse():
    checks = HealthChecks(grace_epochs=3.0)
    at_chance = {"loss": 4.9, "angle_separation": 0.5}
    assert warnings(checks, healthy(epoch=2.9, **at_chance), times=30) == []
    names = {name for name, _ in warnings(checks, healthy(epoch=3.0, **at_chance), times=LASTING)}
    assert names == {"collapse_loss", "collapse_angles"}


def test_a_rank_that_falls():
    checks = HealthChecks()
    assert warnings(checks, healthy(effective_rank=60.0), times=9) == []
    [(name, text)] = warnings(checks, healthy(effective_rank=12.0), times=LASTING)
    assert name == "collapse_rank"
    assert "12.0, after 60.0" in text


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
            [
                "97%",
                "method_kwargs.margins.attenuation (now 0), to 1 by variant=decoupled",
                "temperature",
            ],
        ),
        (
            {"silenced_positives": 0.8, "margins": Margins(curvature=0.1)},
            "silenced_positives",
            ["80%", "raise method_kwargs.margins.curvature (now 0.1)"],
        ),
    ],
)
def test_settings_that_do_harm(changes, name, parts):
    [(found, text)] = warnings(HealthChecks(), healthy(**changes), times=5)
    assert found == name
    assert all(part in text for part in parts), text


def test_collapsed_vectors_are_recognised():
    """All images at one place, as a collapsed network has them."""
    generator = torch.Generator().manual_seed(0)
    one, other = (
        torch.ones(64, 16) + 1e-4 * torch.randn(64, 16, generator=generator) for _ in "12"
    )
    with capture() as compared:
        mocov3_margin_loss_func(one, other, 0.2)
    seen = measure(StepCapture(compared, features=[one]))
    names = {name for name, _ in warnings(HealthChecks(), seen, times=LASTING)}
    assert names == {"collapse_loss", "collapse_rank", "collapse_angles"}
