"""The settings of the lens, as a configuration has them."""

import pytest
from omegaconf import OmegaConf
from solo.args.pretrain import parse_cfg as parse_pretrain_cfg
from solo.methods import METHODS

from solo_margins import training
from solo_margins.config import read
from solo_margins.lens import LensSettings

WRONG = {
    "lens.every=0": "lens.every must be a whole number above 0 or None, got 0",
    "lens.every=often": "lens.every must be a whole number above 0 or None, got 'often'",
    "lens.on_collapse=pray": "lens.on_collapse must be one of warn, stop, got 'pray'",
    "lens.enabled=perhaps": "lens.enabled must be true or false, got 'perhaps'",
    "lens.evry=5": "lens has no setting 'evry'; its settings are enabled, every, on_collapse",
    "lens=false": "lens must hold enabled, every, on_collapse, got False",
}


@pytest.mark.parametrize(("override", "message"), WRONG.items())
def test_wrong_settings_are_refused_in_a_sentence(override, message):
    with pytest.raises(ValueError, match=message):
        read(OmegaConf.from_dotlist([override]), "lens", LensSettings)


@pytest.mark.parametrize("method", ["mocov3_margin", "simclr"])
def test_they_are_checked_before_training(raw_config, method):
    with pytest.raises(ValueError, match=r"lens\.every must be a whole number above 0"):
        training.pretrain(raw_config(method, "lens.every=0"))


@pytest.mark.parametrize(("override", "message"), WRONG.items())
def test_they_are_checked_with_the_settings_of_the_method(raw_config, override, message):
    """In any program: before there is a trainer, and before images are loaded."""
    cfg = parse_pretrain_cfg(raw_config("mocov3_margin"))
    cfg = OmegaConf.merge(cfg, OmegaConf.from_dotlist([override]))
    with pytest.raises(ValueError, match=message):
        METHODS["mocov3_margin"](cfg)


def test_the_composed_configuration_has_every_setting(composed):
    cfg = composed("mocov3_margin.yaml", "lens.enabled=true", "lens.every=7")
    assert read(cfg, "lens", LensSettings) == LensSettings(True, 7, "warn")
    assert read(OmegaConf.create({"lens": None}), "lens", LensSettings) == LensSettings()
