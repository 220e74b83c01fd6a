"""Warnings come once, advice is of the end of a run; both name a setting and a direction."""

import math
from dataclasses import asdict, replace

import pytest
import torch
from lens_runs import write_lens
from omegaconf import OmegaConf

from solo_margins.cli import run_cli
from solo_margins.lens.__main__ import main
from solo_margins.lens.capture import StepCapture
from solo_margins.lens.health import MOST_LINES
from solo_margins.lens.measures import measure
from solo_margins.lens.records import Observation, recorded_margins
from solo_margins.lens.rules import LASTING, RULES, SETTING, HealthChecks
from solo_margins.losses import Margins, mocov3_margin_loss_func
from solo_margins.losses.capture import capture
from solo_margins.losses.margins import FIELDS

PLAIN = Margins()
CONFIGURED = OmegaConf.create({"method_kwargs": {"temperature": 0.2}})


def healthy(epoch=100.0, margins=PLAIN, **changes):
    scalars = {
        "loss": 1.0,
        "chance_loss": math.log(128),
        "rankme": 20.0,
        "angle_separation": 0.95,
        "effective_scale": 1.0,
        "saturated_q": 0.1,
        "silenced_positives": 0.0,
        "temperature": 0.2,
        "q": 0.3,
        "pull": 0.8,
        "push": 0.3,
        "positive_angle": 1.0,
        "negative_angle": 1.5,
    }
    return Observation(0, epoch, {**scalars, **changes}, margins=recorded_margins(margins))


def lasting(*first, **changes):
    """Observations that begin well, or as given, and go on with these measures."""
    return [*(first or (healthy(),)), *[healthy(**changes)] * LASTING]


def warnings(checks, seen, times=1):
    return [name for _ in range(times) for name, _ in checks.check(seen)]


def advised(*seen, settings=CONFIGURED):
    checks = HealthChecks(OmegaConf.create(settings))
    for one in seen:
        checks.check(one)
    return checks.symptoms


# Observations that show the symptom of a rule, and what its text advises.
SYMPTOMS = {
    "nonfinite": (lasting(healthy(loss=math.nan)), "lower optimizer.lr"),
    "collapse_loss": (lasting(loss=4.9), "lower optimizer.lr"),
    "collapse_rank": (lasting(rankme=3.0), "lower optimizer.lr"),
    "collapse_angles": (lasting(angle_separation=0.5), "raise scheduler.warmup_epochs"),
    "exploding_scale": (
        lasting(effective_scale=60.0, margins=Margins(angular=3.0)),
        "lower method_kwargs.margins.angular (now 3)",
    ),
    "saturated_q": (
        lasting(saturated_q=0.95),
        "raise method_kwargs.margins.attenuation (now 0)",
    ),
    "silenced_positives": (
        lasting(silenced_positives=0.6, margins=Margins(curvature=0.05)),
        "raise method_kwargs.margins.curvature (now 0.05)",
    ),
    "large_q": (
        lasting(q=0.6, temperature=0.05),
        "raise method_kwargs.margins.attenuation (now 0)",
    ),
    "idle_attenuation": (
        lasting(q=0.04, margins=Margins(attenuation=0.5)),
        "lower method_kwargs.temperature (now 0.2)",
    ),
    "scale_undone": (
        lasting(effective_scale=0.6, margins=Margins(positive_scale=1.25, curvature=1.0)),
        "method_kwargs.margins.positive_scale (now 1.25)",
    ),
    "strong_push": (
        lasting(pull=0.2, push=0.4, positive_angle=0.8),
        "raise method_kwargs.margins.positive_scale",
    ),
    "weak_push": (
        lasting(pull=30.0, push=0.1, margins=Margins(positive_scale=40.0)),
        "lower method_kwargs.margins.positive_scale (now 40)",
    ),
    "wide_angles": (
        lasting(positive_angle=1.1, margins=Margins(curvature=0.5)),
        "raise method_kwargs.margins.curvature (now 0.5)",
    ),
    "full_band": (
        lasting(healthy(pairs_in_band=0.2), pairs_in_band=0.3),
        "raise method_kwargs.polarization.weight",
    ),
    "empty_band": (
        lasting(healthy(pairs_in_band=0.002), pairs_in_band=0.001),
        "raise method_kwargs.polarization.upper",
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_every_rule_has_its_symptom_and_names_a_setting(name):
    seen, advice = SYMPTOMS[name]
    found = advised(*seen)
    assert list(found) == [name]
    assert advice in found[name]
    at_once = "at_once" in RULES[name]
    assert (name in advised(*seen[:-2])) == at_once, "it has to last"
    cold = {"scheduler": {"warmup_epochs": 100}, "method_kwargs": {}}
    assert (name in advised(*seen, settings=cold)) == at_once, "it counts after the warm-up"


@pytest.mark.parametrize("name", RULES)
def test_without_a_configuration_no_setting_of_our_programs_is_named(name):
    found = advised(*SYMPTOMS[name][0], settings={"a_users_own": 1})
    named = set(SETTING.findall(found[name]))
    allowed = {f"margins.{field}" for field in FIELDS}
    assert named <= allowed | {"polarization.weight", "polarization.upper"}


SCALED = asdict(healthy(margins=PLAIN))["margins"] | {"scaling": "my_package.steep"}


@pytest.mark.parametrize(
    ("seen", "rule", "advice"),
    [
        # Margins are the first cause of a collapse.
        (
            lasting(rankme=1.0, margins=Margins(positive_scale=20.0)),
            "collapse_rank",
            "lower method_kwargs.margins.positive_scale",
        ),
        (
            lasting(rankme=1.0, margins=Margins(attenuation=0.99)),
            "collapse_rank",
            "lower method_kwargs.margins.attenuation",
        ),
        # A scale of 1 is as low as it gets.
        (lasting(pull=0.8, push=0.001), "weak_push", "lower method_kwargs.temperature"),
        (
            lasting(effective_scale=60.0, q=0.0, margins=Margins(attenuation=0.95, angular=3.0)),
            "exploding_scale",
            "lower method_kwargs.margins.angular",
        ),
        # A function of one's own.
        (
            [replace(one, margins=SCALED) for one in lasting(effective_scale=60.0)],
            "exploding_scale",
            "let method_kwargs.margins.scaling return less",
        ),
        (
            [replace(one, margins=SCALED) for one in lasting(silenced_positives=0.6)],
            "silenced_positives",
            "let method_kwargs.margins.scaling return more",
        ),
        # Without negatives the learning rate is the scale.
        (
            [
                Observation(0, math.inf, {"pull": 0.9, "negative_angle": 1.5, "positive_angle": at})
                for at in (1.0, *[1.2] * LASTING)
            ],
            "wide_angles",
            "raise optimizer.lr (now 0.15)",
        ),
    ],
)
def test_the_cause_that_is_left_is_named(seen, rule, advice):
    settings = {"optimizer": {"lr": 0.15}, "method_kwargs": {}}
    assert advice in advised(*seen, settings=settings)[rule]


@pytest.mark.parametrize(
    "seen",
    [
        lasting(),
        [Observation(0, math.inf, {})] * 50,
        lasting(q=0.6, margins=Margins(attenuation=1.0)),
        lasting(q=0.49),
        lasting(q=0.2, margins=Margins(attenuation=0.5)),
        lasting(pull=0.2, push=0.4, positive_angle=0.5),
        lasting(healthy(positive_angle=0.3), positive_angle=0.5),
        lasting(positive_angle=1.1, negative_angle=1.7),
        lasting(positive_angle=1.001),
        lasting(healthy(pairs_in_band=0.3), pairs_in_band=0.2),
        lasting(effective_scale=0.6, margins=Margins(curvature=1.0)),
        # Margins in the logits raise the loss of chance.
        lasting(loss=9.0, margins=Margins(angular=0.1)),
        lasting(loss=9.0, margins=Margins(subtractive=0.1)),
        # What has passed is not advised.
        [*lasting(q=0.6), healthy()],
    ],
    ids=range(14),
)
def test_what_is_as_it_should_be_is_no_symptom(seen):
    assert advised(*seen) == {}


def test_at_half_the_weight_of_negatives_gradients_do_not_vanish():
    assert "saturated_q" not in advised(*lasting(saturated_q=0.97, negatives_weight=0.5))


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"loss": math.log(128) - 0.01}, "collapse_loss"),
        ({"rankme": 1.2}, "collapse_rank"),
        ({"angle_separation": 0.51}, "collapse_angles"),
    ],
)
def test_a_collapse_is_told_once_and_when_it_lasts(changes, name):
    checks = HealthChecks(CONFIGURED)
    for _ in range(3):
        assert warnings(checks, healthy(**changes), times=LASTING - 1) == []
        assert warnings(checks, healthy()) == [], "a short dip"
    assert warnings(checks, healthy(**changes), times=LASTING) == [name]
    assert warnings(checks, healthy(**changes), times=20) == []


def test_how_training_begins_is_not_a_collapse():
    checks = HealthChecks(OmegaConf.create({"scheduler": {"warmup_epochs": 2}}))
    at_chance = {"loss": 4.9, "angle_separation": 0.5}
    assert warnings(checks, healthy(epoch=2.9, **at_chance), times=30) == []
    names = warnings(checks, healthy(epoch=3.0, **at_chance), times=LASTING)
    assert set(names) == {"collapse_loss", "collapse_angles"}


def test_without_epochs_ten_observations_are_the_first_one():
    checks, at_chance = HealthChecks(), healthy(epoch=math.nan, angle_separation=0.5)
    assert warnings(checks, at_chance, times=10 + LASTING - 1) == []
    assert warnings(checks, at_chance) == ["collapse_angles"]


def test_collapsed_vectors_are_recognised():
    """All images at one place, as a collapsed network has them."""
    noise = 1e-4 * torch.randn(2, 64, 16, generator=torch.Generator().manual_seed(0))
    one, other = 1 + noise
    with capture() as compared:
        mocov3_margin_loss_func(one, other, 0.2)
    seen = measure(StepCapture(compared, features=[one]), epoch=1.0)
    names = warnings(HealthChecks(CONFIGURED), seen, times=LASTING)
    assert set(names) == {"collapse_loss", "collapse_rank", "collapse_angles"}


def test_the_program_prints_the_most_urgent_lines(tmp_path, capsys):
    bad = {"q": 0.6, "rankme": 1.0, "angle_separation": 0.5, "positive_angle": 1.2}
    bad.update(pull=0.1, push=0.3, loss=4.9, saturated_q=0.5)
    (tmp_path / "bad").mkdir()
    path = write_lens(tmp_path / "bad", lasting(**bad))
    path.write_text(path.read_text() + '{"kind": "obs')
    main(["advise", str(tmp_path / "bad")])
    printed = capsys.readouterr()
    assert "half-written" in printed.err
    lines = printed.out.splitlines()
    assert len(lines) == MOST_LINES < len(advised(*lasting(**bad)))
    assert "optimizer.lr (now 0.15)" in lines[0]
    (tmp_path / "good").mkdir()
    other_version = Observation(9, 100.0, {}, margins={"new": 1.0, "positive_scale": 2.0})
    write_lens(tmp_path / "good", [*lasting(), other_version], settings="damaged")
    main(["advise", str(tmp_path / "good")])
    assert "Nothing to advise" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["nowhere"]])
def test_runs_without_records_are_refused(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        run_cli(main, ["advise", *arguments])
    assert ended.value.code == 1
    [sentence] = capsys.readouterr().err.splitlines()
    assert sentence.startswith("Error: ")
