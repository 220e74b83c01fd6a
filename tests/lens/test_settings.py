"""The settings of the lens, as a configuration has them."""

import pytest
from omegaconf import OmegaConf
from solo.args.pretrain import parse_cfg as parse_pretrain_cfg
from solo.methods import METHODS

from solo_margins.config import read
from solo_margins.lens import LensSettings


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("lens.every=0", r"lens\.every must be"),
        ("lens.every=often", r"lens\.every must be"),
        ("lens.on_collapse=pray", r"lens\.on_collapse must be"),
        ("lens.enabled=perhaps", r"lens\.enabled must be"),
        ("lens.evry=5", "evry"),
        ("lens=false", "lens must"),
    ],
)
def test_wrong_settings_are_refused_with_those_of_the_method(raw_config, override, named):
    """In any program: before there is a trainer, and before images are loaded."""
    cfg = parse_pretrain_cfg(raw_config("mocov3_margin"))
    cfg = OmegaConf.merge(cfg, OmegaConf.from_dotlist([override]))
    with pytest.raises(ValueError, match=named):
        METHODS["mocov3_margin"](cfg)


def test_the_composed_configuration_has_every_setting(composed):
    cfg = composed("mocov3_margin.yaml", "lens.enabled=true", "lens.every=7")
    assert read(cfg, "lens", LensSettings) == LensSettings(True, 7, "warn")
    assert read(OmegaConf.create({"lens": None}), "lens", LensSettings) == LensSettings()
