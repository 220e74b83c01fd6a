"""Scalings by configuration, and margins that a subclass computes for each row."""

from dataclasses import replace

import pytest
import torch
from method_parents import needs
from omegaconf import OmegaConf
from solo.methods import METHODS

from solo_margins import scalings
from solo_margins.losses import Margins
from solo_margins.methods.corrected import CheckpointRefused
from solo_margins.same_run import defining_settings
from solo_margins.training.checked_config import checked_pretraining

SCALING = "method_kwargs.margins.scaling"
TIMES = f"{SCALING}={{_target_: own_scalings.times, factor: 3}}"
SCALED = "method_kwargs.margins.positive_scale=3"


def with_rows_of_their_own(method):
    """Return a subclass whose rows have one scale each, all the same."""

    class ByRow(method):
        margins_by_row = ("positive_scale",)

        def margins_for(self, rows):
            scales = torch.full((len(rows),), 3.0, device=rows.device)
            return replace(self.margins, positive_scale=scales)

    return ByRow


def test_every_method_takes_margins_scalings_and_margins_of_rows(
    train, largest_difference, any_method, monkeypatch
):
    settings = needs(any_method)
    plain, _ = train(any_method, *settings)
    expected, _ = train(any_method, *settings, SCALED)
    assert largest_difference(plain, expected) > 1e-5
    scaled, _ = train(any_method, *settings, TIMES)
    assert largest_difference(scaled, expected) < 1e-9
    monkeypatch.setitem(METHODS, any_method, with_rows_of_their_own(METHODS[any_method]))
    by_row, _ = train(any_method, *settings)
    assert largest_difference(by_row, expected) < 1e-9


def test_a_class_is_instantiated_and_a_name_is_looked_up(config, monkeypatch):
    angle, q = torch.zeros(2), torch.tensor([0.5, 0.25])
    by_class = METHODS["simclr_margin"](
        config("simclr_margin", f"{SCALING}={{_target_: own_scalings.Focal, power: 2}}")
    )
    assert by_class.margins.scaling(angle, q).tolist() == [0.25, 0.5625]

    monkeypatch.setattr(scalings, "SCALINGS", {})

    @scalings.scaling("halved")
    def halved(angle, q):
        return torch.full_like(angle, 0.5)

    by_name = METHODS["simclr_margin"](config("simclr_margin", f"{SCALING}=halved"))
    assert by_name.margins == Margins(scaling=halved)
    assert by_name.cfg.method_kwargs.margins.scaling == "halved"
    scalings.scaling("halved")(halved)
    with pytest.raises(ValueError, match="'halved'"):
        scalings.scaling("halved")(lambda angle, q: angle)


@pytest.mark.parametrize(
    ("written", "named"),
    [
        ("unheard_of", "'unheard_of'"),
        ("3", "got 3"),
        ("{power: 2}", "'power'"),
        ("{_target_: own_scalings.absent}", "own_scalings.absent"),
        ("{_target_: no_such_package.focal}", "no_such_package"),
        ("{_target_: own_scalings.Focal}", "power"),
        ("{_target_: own_scalings.times, facktor: 2}", "facktor"),
        ("{_target_: own_scalings.of_angles_alone}", "cannot be called with"),
        ("{_target_: own_scalings.a_number}", "must return a tensor"),
        ("{_target_: math.pi}", "math.pi"),
    ],
)
def test_impossible_scalings_are_one_sentence(config, written, named):
    with pytest.raises(ValueError, match=r"^method_kwargs\.margins\.scaling") as caught:
        METHODS["simclr_margin"](config("simclr_margin", f"{SCALING}={written}"))
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_scaling_is_recorded_as_written_and_defines_the_run(composed):
    def margins_of(*overrides):
        cfg = checked_pretraining(composed("simclr_margin.yaml", *overrides))
        settings = defining_settings(OmegaConf.to_container(cfg))
        return cfg.variant, settings["method_kwargs"]["margins"]

    variant, margins = margins_of("margins.scaling={_target_: own_scalings.times}")
    assert variant == "custom"
    assert margins["scaling"] == {"_target_": "own_scalings.times"}
    variant, margins = margins_of()
    assert variant == "margins"
    assert "scaling" not in margins


def test_a_run_does_not_go_on_with_another_scaling(train, tmp_path):
    model, trainer = train("simclr_margin", TIMES)
    assert model.cfg.method_kwargs.margins.scaling.factor == 3
    trainer.save_checkpoint(tmp_path / "three.ckpt")
    _, again = train("simclr_margin", TIMES, start=tmp_path / "three.ckpt", max_epochs=2)
    assert again.global_step == 6
    for other in ([TIMES.replace("3", "2")], []):
        with pytest.raises(CheckpointRefused, match=r"method_kwargs\.margins\.scaling"):
            train("simclr_margin", *other, start=tmp_path / "three.ckpt", max_epochs=2)


@pytest.mark.parametrize(
    "unread", [SCALED, "method_kwargs.schedules.positive_scale={to: 3, epochs: 1}"]
)
def test_settings_that_rows_replace_are_refused(config, unread):
    method = with_rows_of_their_own(METHODS["simclr_margin"])
    with pytest.raises(ValueError, match="positive_scale for every row"):
        method(config("simclr_margin", unread))


def test_a_scaling_cannot_be_scheduled(config):
    schedule = "method_kwargs.schedules.scaling={to: 3}"
    with pytest.raises(ValueError, match="'scaling'"):
        METHODS["simclr_margin"](config("simclr_margin", schedule))
