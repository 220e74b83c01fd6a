"""Warnings come once, advice is of the end of a run; both name what to change, with a reason."""

import math
import re
from dataclasses import asdict

import pytest
import torch
from documented import ROOT
from lens_runs import write_lens
from omegaconf import OmegaConf

from solo_margins.cli import run_cli
from solo_margins.lens.__main__ import main
from solo_margins.lens.capture import StepCapture
from solo_margins.lens.health import MOST_LINES, advise
from solo_margins.lens.measures import measure
from solo_margins.lens.records import Observation
from solo_margins.lens.rules import LASTING, RULES, SETTING, HealthChecks
from solo_margins.losses import Margins, mocov3_margin_loss_func
from solo_margins.losses.capture import capture

PLAIN = Margins()
CONFIGURED = OmegaConf.create({"method_kwargs": {"temperature": 0.2}})


def healthy(epoch=100.0, margins=PLAIN, **changes):
    scalars = {
        "loss": 1.0,
        "chance_loss": math.log(128),
        "effective_rank": 20.0,
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
    return Observation(0, epoch, {**scalars, **changes}, margins=asdict(margins))


def warnings(checks, seen, times=1):
    return [warning for _ in range(times) for warning in checks.check(seen)]


@pytest.mark.parametrize("seen", [healthy(), Observation(0, math.inf, {}), healthy(loss=math.nan)])
def test_a_healthy_run_is_left_in_peace(seen):
    assert warnings(HealthChecks(CONFIGURED), seen, times=50) == []


@pytest.mark.parametrize(
    ("changes", "name", "parts"),
    [
        (
            {"loss": math.log(128) - 0.01},
            "collapse_loss",
            ["4.84", "for 128 images", "lower optimizer.lr or raise scheduler.warmup_epochs"],
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
    checks = HealthChecks(CONFIGURED)
    assert warnings(checks, healthy(**changes), times=LASTING - 1) == []
    [(found, text)] = warnings(checks, healthy(**changes))
    assert found == name
    assert all(part in text for part in parts), text
    assert "\n" not in text
    assert warnings(checks, healthy(**changes), times=20) == []


@pytest.mark.parametrize("margins", [Margins(angular=0.1), Margins(subtractive=0.1)])
def test_margins_in_the_logits_raise_the_loss_of_chance(margins):
    assert warnings(HealthChecks(CONFIGURED), healthy(loss=9.0, margins=margins), times=20) == []


def test_a_short_dip_is_not_a_collapse():
    checks = HealthChecks(CONFIGURED)
    for _ in range(5):
        assert warnings(checks, healthy(angle_separation=0.5), times=LASTING - 1) == []
        assert warnings(checks, healthy()) == []


def test_how_training_begins_is_not_a_collapse():
    checks = HealthChecks(OmegaConf.create({"scheduler": {"warmup_epochs": 2}}))
    at_chance = {"loss": 4.9, "angle_separation": 0.5}
    assert warnings(checks, healthy(epoch=2.9, **at_chance), times=30) == []
    names = {name for name, _ in warnings(checks, healthy(epoch=3.0, **at_chance), times=LASTING)}
    assert names == {"collapse_loss", "collapse_angles"}


def test_without_epochs_ten_observations_are_the_first_one():
    checks, at_chance = HealthChecks(), healthy(epoch=math.nan, angle_separation=0.5)
    assert warnings(checks, at_chance, times=10 + LASTING - 1) == []
    [(name, text)] = warnings(checks, at_chance)
    assert name == "collapse_angles"
    # Nobody has a configuration there.
    assert text.endswith(": lower the learning rate or lengthen its warm-up")


def test_a_rank_that_falls():
    checks = HealthChecks(CONFIGURED)
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
            {"saturated_q": 0.97},
            "saturated_q",
            [
                "97%",
                "raise method_kwargs.margins.attenuation (now 0)",
                "raise method_kwargs.temperature (now 0.2)",
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
    [(found, text)] = warnings(HealthChecks(CONFIGURED), healthy(**changes), times=5)
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
    seen = measure(StepCapture(compared, features=[one]), epoch=1.0)
    names = {name for name, _ in warnings(HealthChecks(CONFIGURED), seen, times=LASTING)}
    assert names == {"collapse_loss", "collapse_rank", "collapse_angles"}


# --------------------------------------------------------------------- advice

ATTENUATE = "raise method_kwargs.margins.attenuation (now 0)"


def advised(*seen, settings=None):
    checks = HealthChecks(OmegaConf.create(settings) if settings else CONFIGURED)
    for one in seen:
        checks.check(one)
    return checks.symptoms


def lasting(*first, **changes):
    """Observations that begin well, or as given, and go on with these measures."""
    return [*(first or (healthy(),)), *[healthy(**changes)] * LASTING]


SYMPTOMS = {
    "nonfinite": (lasting(healthy(loss=math.nan)), ["1 of 6 observations", "lower optimizer.lr"]),
    "collapse_loss": (lasting(loss=4.9), ["4.90", "lower optimizer.lr"]),
    "collapse_rank": (lasting(effective_rank=3.0), ["3.0, after 20.0", "lower optimizer.lr"]),
    "collapse_angles": (lasting(angle_separation=0.5), ["0.50", "raise scheduler.warmup_epochs"]),
    "exploding_scale": (
        lasting(effective_scale=60.0, margins=Margins(angular=3.0)),
        ["by 60", "lower method_kwargs.margins.angular (now 3)"],
    ),
    "saturated_q": (lasting(saturated_q=0.95, q=0.97), ["95%", ATTENUATE]),
    "silenced_positives": (
        lasting(silenced_positives=0.6, margins=Margins(curvature=0.05)),
        ["60%", "raise method_kwargs.margins.curvature (now 0.05)"],
    ),
    "large_q": (
        lasting(q=0.6, temperature=0.05),
        ["q is 0.60", "by 2.5", ATTENUATE, "method_kwargs.temperature (now 0.05)"],
    ),
    "idle_attenuation": (
        lasting(q=0.04, margins=Margins(attenuation=0.5)),
        ["by 1.02", "lower method_kwargs.temperature (now 0.2)", "schedules.temperature"],
    ),
    "scale_undone": (
        lasting(effective_scale=0.6, margins=Margins(positive_scale=1.25, curvature=1.0)),
        ["by 0.60", "curvature (now 1)", "method_kwargs.margins.positive_scale (now 1.25)"],
    ),
    "strong_push": (
        lasting(pull=0.2, push=0.4, positive_angle=0.8),
        ["push with 0.40", "pull with 0.20", "46°", "raise method_kwargs.margins.positive_scale"],
    ),
    "weak_push": (
        lasting(pull=30.0, push=0.1, margins=Margins(positive_scale=40.0)),
        ["push with 0.1,", "lower method_kwargs.margins.positive_scale (now 40)"],
    ),
    "wide_angles": (
        lasting(positive_angle=1.1, margins=Margins(curvature=0.5)),
        ["63°", "0.73", "after 0.67", "raise method_kwargs.margins.curvature (now 0.5)"],
    ),
    "full_band": (
        lasting(healthy(pairs_in_band=0.2), pairs_in_band=0.3),
        ["30.0%", "after 20.0%", "raise method_kwargs.polarization.weight"],
    ),
    "empty_band": (
        lasting(healthy(pairs_in_band=0.002), pairs_in_band=0.001),
        ["at most 0.2%", "raise method_kwargs.polarization.upper"],
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_every_rule_has_its_symptom(name):
    seen, parts = SYMPTOMS[name]
    found = advised(*seen)
    assert list(found) == [name]
    assert all(part in found[name] for part in parts), found
    assert SETTING.search(found[name])
    at_once = "at_once" in RULES[name]
    assert (name in advised(*seen[:-2])) == at_once, "it has to last"
    cold = {"scheduler": {"warmup_epochs": 100}, "method_kwargs": {}}
    assert (name in advised(*seen, settings=cold)) == at_once, "it counts after the warm-up"


@pytest.mark.parametrize(
    "seen",
    [
        lasting(q=0.6, margins=Margins(attenuation=1.0)),
        lasting(q=0.49),
        lasting(q=0.2, margins=Margins(attenuation=0.5)),
        lasting(pull=0.2, push=0.4, positive_angle=0.5),
        lasting(healthy(positive_angle=0.3), positive_angle=0.5),
        lasting(positive_angle=1.1, negative_angle=1.7),
        lasting(healthy(pairs_in_band=0.3), pairs_in_band=0.2),
        lasting(effective_scale=0.6, margins=Margins(curvature=1.0)),
    ],
    ids=range(8),
)
def test_what_is_as_it_should_be_is_no_symptom(seen):
    assert advised(*seen) == {}


@pytest.mark.parametrize(
    ("changes", "absent", "expected"),
    [
        # The angular margin halves the pull of distant positives; there is no curve.
        (
            {"effective_scale": 0.5, "margins": Margins(positive_scale=1.5, angular=2.0)},
            "scale_undone",
            None,
        ),
        # At β = 0.5 half of the gradient is left where q is 1.
        ({"saturated_q": 0.97, "negatives_weight": 0.5}, "saturated_q", None),
        # To two decimals nothing has changed.
        ({"positive_angle": 1.001}, "wide_angles", None),
        # A scale of 1 is as low as it gets.
        ({"pull": 0.8, "push": 0.001}, "", ("weak_push", "lower method_kwargs.temperature")),
        (
            {"effective_scale": 60.0, "margins": Margins(attenuation=0.95, angular=3.0), "q": 0.0},
            "",
            ("exploding_scale", "lower method_kwargs.margins.angular (now 3)"),
        ),
    ],
    ids=["scale_undone", "saturated_q", "wide_angles", "weak_push", "exploding_scale"],
)
def test_no_rule_claims_more_than_its_limits_say(changes, absent, expected):
    found = advised(*lasting(**changes))
    assert absent not in found
    if expected is not None:
        name, part = expected
        assert part in found[name]


@pytest.mark.parametrize("loss", [0.985 * math.log(16), 3.83])
def test_the_loss_is_compared_with_chance_and_not_called_equal(loss):
    found = advised(*lasting(loss=loss, chance_loss=math.log(16)))
    assert f"({loss:.2f}) is close to or above" in found["collapse_loss"]
    assert "16 images (log 16 = 2.77)" in found["collapse_loss"]


@pytest.mark.parametrize("name", RULES)
def test_without_a_configuration_no_setting_of_our_programs_is_named(name):
    seen, _ = SYMPTOMS[name]
    checks = HealthChecks(OmegaConf.create({"a_users_own": 1}))
    for one in seen:
        checks.check(one)
    words = checks.symptoms[name]
    of_our_programs = ("method_kwargs", "schedule", "variant", "optimizer.", "precision=")
    assert not [part for part in of_our_programs if part in words], words
    # What the user has given to the loss keeps its name.
    assert set(SETTING.findall(words)) <= {f"margins.{field}" for field in asdict(PLAIN)} | {
        "polarization.weight",
        "polarization.upper",
    }


def test_what_has_passed_is_not_advised():
    assert advised(*lasting(q=0.6), healthy()) == {}


def test_without_negatives_the_learning_rate_is_the_scale():
    def seen(angle):
        return Observation(
            0, math.inf, {"pull": 0.9, "positive_angle": angle, "negative_angle": 1.5}
        )

    settings = {"optimizer": {"lr": 0.15}, "method_kwargs": {}}
    found = advised(seen(1.0), *[seen(1.2)] * LASTING, settings=settings)
    assert found["wide_angles"].endswith("raise optimizer.lr (now 0.15)")


def test_the_program_prints_five_lines_at_most(tmp_path, capsys):
    bad = {"q": 0.6, "effective_rank": 1.0, "angle_separation": 0.5, "positive_angle": 1.2}
    bad.update(pull=0.1, push=0.3, loss=4.9, saturated_q=0.5)
    (tmp_path / "bad").mkdir()
    write_lens(tmp_path / "bad", lasting(**bad))
    main(["advise", str(tmp_path / "bad")])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == MOST_LINES < len(advised(*lasting(**bad)))
    assert lines[0].startswith("The loss (4.90)")
    assert "optimizer.lr (now 0.15)" in lines[0]
    assert all(line.endswith(".") for line in lines)
    (tmp_path / "good").mkdir()
    other_version = Observation(9, 100.0, {}, margins={"new": 1.0, "positive_scale": 2.0})
    write_lens(tmp_path / "good", [*lasting(), other_version], settings="damaged")
    main(["advise", str(tmp_path / "good")])
    said = "Nothing to advise after step 9. Most rules need 5 observations after the warm-up and"
    assert capsys.readouterr().out.startswith(said)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Error: Name the folder of one run: advise RUN."),
        (["a", "b"], "Error: Name the folder of one run: advise RUN."),
        (["nowhere"], "lens.jsonl does not exist: advice needs a run with lens.enabled=true."),
    ],
)
def test_runs_without_records_are_refused(arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        run_cli(main, ["advise", *arguments])
    assert ended.value.code == 1
    assert message in capsys.readouterr().err


def test_a_half_written_file_is_read_as_far_as_it_goes(tmp_path, capsys):
    path = write_lens(tmp_path, lasting(q=0.6))
    path.write_text(path.read_text() + '{"kind": "obs')
    assert advise([str(tmp_path)]).startswith("Q is 0.60")
    assert "half-written" in capsys.readouterr().err


def test_the_guide_has_every_rule_with_its_settings_and_limits():
    page = (ROOT / "docs" / "guide.md").read_text()
    section = page[page.index("## Which dial for which symptom") :]
    section = section[: section.index("\n## ", 1)]
    rows = {line.split("`")[1]: line for line in section.splitlines() if line.startswith("| `")}
    assert list(rows) == list(RULES)
    for name, rule in RULES.items():
        seen, _ = SYMPTOMS[name]
        assert all(key in rows[name] for key in SETTING.findall(advised(*seen)[name])), name
        assert ("yes" in rows[name].split("|")[-2]) == ("warns" in rule), name
        limits = [*rule.get("above", {}).values(), *rule.get("below", {}).values()]
        assert set(map(str, limits)) <= set(re.findall(r"\d+(?:\.\d+)?", rows[name])), name
