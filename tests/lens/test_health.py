"""Warnings come once, advice is of the end of a run; both name a setting and a direction."""

import math
from dataclasses import replace

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
SETTINGS = {
    "method_kwargs": {"temperature": 0.2},
    "optimizer": {"lr": 0.15},
    "max_epochs": 200,
}
# What follows from the length of the run, which only a configuration tells.
BY_LENGTH = "scale_in_short_run"
HEALTHY = {
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


def healthy(epoch=100.0, margins=PLAIN, step=0, **changes):
    return Observation(step, epoch, {**HEALTHY, **changes}, margins=recorded_margins(margins))


def lasting(*first, **changes):
    """Observations that begin well, or as given, and go on with these measures."""
    return [*(first or (healthy(),)), *[healthy(**changes)] * LASTING]


def without_negatives(angle):
    return Observation(0, 100.0, {"pull": 0.9, "negative_angle": 1.5, "positive_angle": angle})


def warnings(checks, seen, times=1):
    return [name for _ in range(times) for name, _ in checks.check(seen)]


def advised(*seen, **settings):
    """Return the texts of rules, with settings of methods by their short names."""
    checks = HealthChecks(OmegaConf.create({**SETTINGS, **settings}))
    for one in seen:
        checks.check(one)
    return {name: text.replace("method_kwargs.", "") for name, text in checks.symptoms.items()}


# Observations that show the symptom of a rule, and what its text advises.
SYMPTOMS = {}


def symptom(rule, advice, *first, **changes):
    SYMPTOMS[rule] = lasting(*first, **changes), advice


SCALED, STEEP = Margins(positive_scale=1.25, curvature=1.0), Margins(curvature=0.05)
symptom("nonfinite", "lower optimizer.lr (now 0.15)", healthy(loss=math.nan))
symptom("collapse_loss", "lower optimizer.lr (now 0.15)", loss=4.9)
symptom("collapse_rank", "lower optimizer.lr (now 0.15)", rankme=3.0)
symptom("collapse_angles", "raise scheduler.warmup_epochs (now 99)", angle_separation=0.5)
tilted = {"margins": Margins(angular=3.0)}
symptom("exploding_scale", "lower margins.angular (now 3)", effective_scale=60.0, **tilted)
symptom("saturated_q", "raise margins.attenuation (now 0)", saturated_q=0.95)
silenced = {"silenced_positives": 0.6, "margins": STEEP}
symptom("silenced_positives", "raise margins.curvature (now 0.05)", **silenced)
symptom("large_q", "raise margins.attenuation (now 0)", q=0.6, temperature=0.05)
attenuated = {"margins": Margins(attenuation=0.5)}
symptom("idle_attenuation", "lower temperature (now 0.2)", q=0.04, **attenuated)
symptom("scale_undone", "margins.positive_scale (now 1.25)", effective_scale=0.6, margins=SCALED)
pushed = {"pull": 0.2, "push": 0.4, "positive_angle": 0.8}
symptom("strong_push", "raise margins.positive_scale (now 1)", **pushed)
pulled = {"pull": 30.0, "push": 0.1, "margins": Margins(positive_scale=40.0)}
symptom("weak_push", "lower margins.positive_scale (now 40)", **pulled)
short = {"step": 2000, "effective_scale": 1.5, "margins": Margins(positive_scale=1.5)}
symptom(BY_LENGTH, "4,000 steps", **short)
wide = {"positive_angle": 1.1, "margins": Margins(curvature=0.5)}
symptom("wide_angles", "raise margins.curvature (now 0.5)", **wide)
symptom("full_band", "raise polarization.weight", healthy(pairs_in_band=0.2), pairs_in_band=0.3)
empty = healthy(pairs_in_band=0.002)
symptom("empty_band", "raise polarization.upper", empty, pairs_in_band=0.001)


@pytest.mark.parametrize("name", RULES)
def test_every_rule_has_its_symptom_and_names_a_setting(name):
    seen, advice = SYMPTOMS[name]
    found = advised(*seen, scheduler={"warmup_epochs": 99})
    assert list(found) == [name]
    assert advice in found[name]
    at_once = "at_once" in RULES[name]
    assert (name in advised(*seen[:-2])) == at_once, "it has to last"
    begun = advised(*seen, scheduler={"warmup_epochs": 99.01})
    assert (name in begun) == at_once, "it counts after the warm-up and an epoch"


def test_the_whole_length_of_a_run_counts_and_only_with_negatives():
    seen, _ = SYMPTOMS[BY_LENGTH]
    assert BY_LENGTH in advised(*seen, max_epochs=200)
    assert advised(*seen, max_epochs=2000) == advised(*seen, max_epochs=None) == {}
    kept = {name: value for name, value in seen[-1].scalars.items() if name != "push"}
    assert advised(*(replace(one, scalars=kept) for one in seen)) == {}


@pytest.mark.parametrize("name", [name for name in RULES if name != BY_LENGTH])
def test_without_a_configuration_no_setting_of_our_programs_is_named(name):
    checks = HealthChecks(OmegaConf.create({"a_users_own": 1}))
    for one in SYMPTOMS[name][0]:
        checks.check(one)
    named = set(SETTING.findall(checks.symptoms[name]))
    of_margins = {f"margins.{field}" for field in FIELDS}
    assert named <= of_margins | {"polarization.weight", "polarization.upper"}


def scaled(seen):
    """The same observations of a run with a scaling of its own."""
    return [replace(one, margins={**one.margins, "scaling": "my_package.own"}) for one in seen]


ATTENUATED = Margins(attenuation=0.99)
GREAT = {"effective_scale": 60.0, "q": 0.0, "margins": Margins(attenuation=0.95, angular=3.0)}


@pytest.mark.parametrize(
    ("seen", "rule", "advice"),
    [
        (lasting(rankme=1.0, margins=SCALED), "collapse_rank", "lower margins.positive_scale"),
        (lasting(rankme=1.0, margins=ATTENUATED), "collapse_rank", "lower margins.attenuation"),
        # A scale of 1 is as low as it gets.
        (lasting(pull=0.8, push=0.001), "weak_push", "lower temperature"),
        (lasting(**GREAT), "exploding_scale", "lower margins.angular"),
        (scaled(lasting(effective_scale=60)), "exploding_scale", "scaling return less"),
        (scaled(lasting(silenced_positives=1)), "silenced_positives", "scaling return more"),
        # Without negatives the learning rate is the scale.
        (map(without_negatives, [1.0] + [1.2] * LASTING), "wide_angles", "raise optimizer.lr"),
    ],
    ids=range(7),
)
def test_the_most_likely_cause_is_named(seen, rule, advice):
    assert advice in advised(*seen)[rule]


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
        # Attenuation divides by what vanishes.
        lasting(effective_scale=60.0, q=0.99, margins=Margins(attenuation=1.0)),
        # Margins in the logits raise the loss of chance.
        lasting(loss=9.0, margins=Margins(angular=0.1)),
        lasting(loss=9.0, margins=Margins(subtractive=0.1)),
        # At half the weight of negatives gradients do not vanish.
        lasting(saturated_q=0.97, negatives_weight=0.5),
        # What has passed is not advised.
        [*lasting(q=0.6), healthy()],
    ],
    ids=range(16),
)
def test_what_is_as_it_should_be_is_no_symptom(seen):
    assert advised(*seen) == {}


def test_a_collapse_is_told_once_and_when_it_lasts():
    checks, collapsed = HealthChecks(), healthy(angle_separation=0.51)
    for _ in range(3):
        assert warnings(checks, collapsed, times=LASTING - 1) == []
        assert warnings(checks, healthy()) == [], "a short dip"
    assert warnings(checks, collapsed, times=LASTING) == ["collapse_angles"]
    assert warnings(checks, collapsed, times=20) == []


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
    names = warnings(HealthChecks(), seen, times=LASTING)
    assert set(names) == {"collapse_loss", "collapse_rank", "collapse_angles"}


def test_the_program_prints_the_most_urgent_lines(tmp_path, capsys):
    bad = {"q": 0.6, "rankme": 1.0, "angle_separation": 0.5, "positive_angle": 1.2}
    bad.update(pull=0.1, push=0.3, loss=4.9, saturated_q=0.5)
    path = write_lens(tmp_path / "bad", lasting(**bad))
    path.write_text(path.read_text() + '{"kind": "obs')
    main(["advise", str(path.parent)])
    printed = capsys.readouterr()
    assert "half-written" in printed.err
    lines = printed.out.splitlines()
    assert len(lines) == MOST_LINES < len(advised(*lasting(**bad)))
    assert "optimizer.lr (now 0.15)" in lines[0]
    other_version = Observation(9, 100.0, {}, margins={"new": 1.0, "positive_scale": 2.0})
    path = write_lens(tmp_path / "good", [*lasting(), other_version], settings="damaged")
    main(["advise", str(path.parent)])
    assert "Nothing to advise" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["nowhere"]])
def test_runs_without_records_are_refused(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        run_cli(main, ["advise", *arguments])
    assert ended.value.code == 1
    [sentence] = capsys.readouterr().err.splitlines()
    assert sentence.startswith("Error: ")
