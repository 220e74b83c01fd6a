"""Settings that ramp over training: their shape, their log, and their place after a resume."""

import math
import re
from dataclasses import asdict

import lightning.pytorch as pl
import pytest
from method_parents import needs
from solo.methods import METHODS

from solo_margins.losses import Margins
from solo_margins.losses.capture import capture
from solo_margins.methods.settings import Alignment, Schedule, read_schedules

MARGINS = Margins(angular=0.3, subtractive=0.2, positive_scale=5.0, attenuation=0.5)
VALUES = {**asdict(MARGINS), "polarization_weight": 10.0, "temperature": 0.2}


class Record(pl.Callback):
    """Notes what every step trained with and what it logged."""

    def __init__(self, is_polarized=False):
        self.is_polarized = is_polarized
        self.scales, self.weights, self.logged = [], [], []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.scales.append(pl_module.margins.positive_scale)
        self.weights.append(pl_module.polarization.weight)
        metrics = trainer.callback_metrics
        self.logged.append(metrics["schedule_positive_scale"].item())
        if self.is_polarized:
            # Also in a step whose weight is 0.
            assert metrics["train_polarization_loss"].item() > 0


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("linear", [1.0, 2.0, 3.0, 4.0, 5.0, 5.0]),
        ("cosine", [1.0, 1.5857864, 3.0, 4.4142136, 5.0, 5.0]),
        ("constant", [1.0, 1.0, 1.0, 1.0, 5.0, 5.0]),
        ("cycle", [1.0, 3.0, 5.0, 3.0, 1.0, 3.0]),
        ("log", [1.0, *(1.0 + 4.0 * math.log(1 + n) / math.log(5) for n in (1, 2, 3)), 5.0, 5.0]),
    ],
)
def test_the_shapes(kind, values):
    schedule = Schedule(kind, start=1.0, end=5.0, epochs=4)
    assert [schedule.at(epoch) for epoch in (0, 1, 2, 3, 4, 9)] == pytest.approx(values)


def test_a_ramp_of_no_length_is_over_at_once():
    assert Schedule("linear", start=1.0, end=5.0, epochs=0).at(0) == 5.0


def test_what_is_not_said_comes_from_the_settings():
    found = read_schedules(
        {
            "positive_scale": {"kind": "cosine"},
            "angular": {"epochs": 2, "kind": None},
            "attenuation": {"kind": "constant"},
            "polarization_weight": {"from": 1, "to": 2},
            "subtractive": {"kind": None, "to": None},
            "curvature": None,
            "temperature": {"kind": "cycle", "to": 0.1, "epochs": 5},
        },
        VALUES,
        max_epochs=30,
    )
    assert found == {
        "positive_scale": Schedule("cosine", 1.0, 5.0, 30.0),
        "angular": Schedule("linear", 0.0, 0.3, 2.0),
        "attenuation": Schedule("constant", 0.5, 0.5, 30.0),
        "polarization_weight": Schedule("linear", 1.0, 2.0, 30.0),
        "temperature": Schedule("cycle", 0.2, 0.1, 5.0),
    }


def test_a_ramp_without_a_length_takes_the_whole_run():
    found = read_schedules({"positive_scale": {"to": 5.0}}, VALUES, max_epochs=None)
    ramp = found["positive_scale"]
    assert ramp.epochs is None
    assert [ramp.at(epoch, run_length=2.5) for epoch in (0, 1.25, 2.5)] == [1.0, 3.0, 5.0]


def test_an_alignment_starts_from_the_temperature():
    entry = {"kind": "alignment", "factor": 0.8, "reference": None, "to": None}
    found = read_schedules({"temperature": entry}, VALUES, max_epochs=30)
    assert found == {"temperature": Alignment(0.2, 0.8, 0.0)}
    settings = {"kind": "alignment", "factor": 0.8, "reference": 0.0}
    assert found["temperature"].settings() == settings


@pytest.mark.parametrize(
    ("field", "entry", "named"),
    [
        ("scale", {}, "schedules has no setting 'scale'"),
        ("angular", {"start": 1}, "schedules.angular has no setting 'start'"),
        ("angular", {"kind": "steep"}, "schedules.angular.kind"),
        ("angular", 3, "schedules.angular must hold"),
        ("curvature", {"to": 2.0}, "schedules.curvature.from"),
        ("curvature", {"from": 2.0}, "schedules.curvature.to"),
        ("angular", {"epochs": -1}, "schedules.angular.epochs"),
        ("angular", {"kind": "cycle", "epochs": 0}, "schedules.angular.epochs"),
        ("angular", {"kind": "alignment"}, "schedules.angular.kind"),
        ("angular", {"factor": 1}, "schedules.angular has no setting 'factor'"),
        ("positive_scale", {"from": 0, "to": 2}, "schedules.positive_scale.from"),
        ("attenuation", {"to": 1.5}, "schedules.attenuation.to"),
        ("polarization_weight", {"to": -1}, "schedules.polarization_weight.to"),
        ("temperature", {"to": 0}, "schedules.temperature.to"),
        ("temperature", {"kind": "alignment", "to": 0.3}, "kind=alignment has no setting 'to'"),
        ("temperature", {"factor": 0.5}, "kind=linear has no setting 'factor'"),
        ("temperature", {"kind": "alignment", "factor": 2}, "schedules.temperature.factor"),
    ],
)
def test_impossible_schedules(field, entry, named):
    with pytest.raises(ValueError, match=rf"^method_kwargs\..*{re.escape(named)}"):
        read_schedules({field: entry}, VALUES, max_epochs=30)


class Temperatures(pl.Callback):
    """Notes the temperature that every loss of a step computes with, and the one logged."""

    def __init__(self):
        self.used, self.logged, self.weights = [], [], []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.capture = capture()
        self.captured = self.capture.__enter__()

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.capture.__exit__(None, None, None)
        self.used.append([captured.spec.temperature for captured in self.captured])
        self.logged.append(trainer.callback_metrics["schedule_temperature"].item())


CYCLE = "method_kwargs.schedules.temperature={kind: cycle, from: 0.4, to: 0.2, epochs: 1}"
ALIGNED = "method_kwargs.schedules.temperature={kind: alignment, factor: 1, reference: 0.5}"
TAU = "method_kwargs.temperature=0.2"


def test_every_method_with_a_temperature_follows_its_schedule(train, any_method):
    settings = needs(any_method)
    if not METHODS[any_method].has_negatives:
        with pytest.raises(ValueError, match=r"method_kwargs\.schedules\.temperature"):
            train(any_method, *settings, CYCLE)
        return
    for schedule in (CYCLE, ALIGNED):
        record = Temperatures()
        train(any_method, *settings, TAU, schedule, callbacks=[record])
        assert all(record.used)
        for used, logged in zip(record.used, record.logged, strict=True):
            assert logged == pytest.approx(used[-1])
        if schedule == CYCLE:
            cycle = [0.4, 0.25, 0.25] * 2
            assert record.used == [
                pytest.approx([tau] * len(used))
                for tau, used in zip(cycle, record.used, strict=False)
            ]
        else:
            taus = {tau for used in record.used for tau in used}
            assert len(taus) > 1
            assert all(0.02 <= tau <= 0.3 for tau in taus)


COOLING = "method_kwargs.schedules.temperature={kind: log, from: 0.5, to: 0.1, epochs: 2}"


def test_the_inverse_temperature_grows_as_the_logarithm_of_steps(train, tmp_path):
    """Also in a run that goes on from a checkpoint."""
    steps = [math.log(1 + n) / math.log(1 + 6) for n in range(6)]
    expected = [1 / (2 + (10 - 2) * ramp) for ramp in steps]
    whole, resumed = Temperatures(), Temperatures()
    settings = [TAU, COOLING, "max_epochs=3"]
    _, lightning = train("simclr_margin", *settings, callbacks=[whole], max_epochs=1)
    lightning.save_checkpoint(tmp_path / "half.ckpt")
    half = tmp_path / "half.ckpt"
    train("simclr_margin", *settings, start=half, callbacks=[resumed], max_epochs=3)
    used = [tau for taus in [*whole.used, *resumed.used] for tau in taus]
    assert used == pytest.approx([*expected, 0.1, 0.1, 0.1])
    assert resumed.logged == pytest.approx([*expected[3:], 0.1, 0.1, 0.1])


def test_an_angular_margin_may_pass_zero():
    """Below it the pull ends before positives are alike."""
    found = read_schedules({"angular": {"from": 0.3, "to": -1.5}}, VALUES, max_epochs=2)
    assert found["angular"].at(1) == pytest.approx(-0.6)
    with pytest.raises(ValueError, match=r"schedules\.angular\.to"):
        read_schedules({"angular": {"to": -1.6}}, VALUES, max_epochs=2)


def test_the_factor_of_mocov3_follows_the_temperature(train):
    """Under a schedule that is over at once the run is that with the last temperature."""
    over = "method_kwargs.schedules.temperature={kind: linear, from: 0.7, to: 0.2, epochs: 0}"
    for factor in ("true", "false"):
        switch = f"method_kwargs.scale_by_temperature={factor}"
        losses = []
        for settings in ([TAU], ["method_kwargs.temperature=0.9", over]):
            _, lightning = train("mocov3_margin", switch, *settings)
            losses.append(lightning.callback_metrics["train_contrastive_loss"].item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-9)


RAMPED = [
    "method_kwargs.schedules.positive_scale={kind: linear, from: 1, to: 5, epochs: 2}",
    "method_kwargs.schedules.polarization_weight={kind: linear, to: 4, epochs: 2}",
    "method_kwargs.polarization={lower: 0.05, upper: 0.9}",
    "max_epochs=3",
]


@pytest.mark.parametrize("accumulated", [1, 2])
def test_every_step_trains_with_its_value_and_logs_it(train, accumulated):
    """Batches whose gradients are accumulated are one step."""
    record = Record(is_polarized=True)
    limits = {"max_epochs": 3, "limit_train_batches": 4, "accumulate_grad_batches": accumulated}
    train("mocov3_margin", *RAMPED, **limits, callbacks=[record])
    expected = [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.0, 5.0, 5.0]
    if accumulated == 2:
        expected = [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 5.0, 5.0, 5.0, 5.0]
    assert record.scales == expected
    assert record.logged == pytest.approx(expected)
    assert record.weights == [scale - 1.0 for scale in expected]


def test_a_resumed_training_goes_on_with_the_ramp(train, tmp_path):
    _, lightning = train("simclr_margin", *RAMPED, max_epochs=1)
    lightning.save_checkpoint(tmp_path / "half.ckpt")
    record = Record()
    train(
        "simclr_margin",
        *RAMPED,
        start=tmp_path / "half.ckpt",
        max_epochs=2,
        callbacks=[record],
    )
    assert record.scales == pytest.approx([3.0, 3.0 + 2 / 3, 3.0 + 4 / 3])


@pytest.mark.parametrize(
    ("limits", "steps"),
    [
        ({"max_steps": 5, "max_epochs": 40}, 5),
        ({"max_steps": 5, "max_epochs": 40, "limit_train_batches": 2}, 5),
        (
            {
                "max_steps": 3,
                "max_epochs": 40,
                "accumulate_grad_batches": 2,
                "limit_train_batches": 4,
            },
            3,
        ),
        ({"max_steps": 50, "max_epochs": 2, "limit_train_batches": 3}, 6),
    ],
)
def test_the_default_length_is_the_run_by_whichever_limit_ends_it(train, limits, steps):
    record = Record()
    _, lightning = train(
        "mocov3_margin",
        "method_kwargs.schedules.positive_scale={from: 1, to: 5}",
        *(f"{name}={value}" for name, value in limits.items()),
        **limits,
        callbacks=[record],
    )
    assert lightning.global_step == steps
    accumulated = limits.get("accumulate_grad_batches", 1)
    of_steps = [1.0 + 4.0 * step / steps for step in range(steps)]
    expected = [value for value in of_steps for _ in range(accumulated)]
    assert record.scales == pytest.approx(expected)
