"""What is particular to release 1.0.2 from the package registry."""

import sys

import pytest
import torch
from solo.methods import METHODS
from solo.methods.linear import LinearModel
from solo.methods.simclr import SimCLR

from solo_margins import registry, solo_1_0_2


@pytest.mark.parametrize("name", ["wmse_curv", "supcon_margin", "nnclr_margin", "simsiam_curv"])
def test_a_method_without_a_parent_names_the_version_that_has_one(name):
    assert name not in METHODS
    with pytest.raises(NotImplementedError, match=f"{name}.*repository") as error:
        registry.method_class(name)
    assert str(error.value).count(". ") == 0


def test_a_method_of_the_release_that_is_not_adapted_is_not_found():
    with pytest.raises(ModuleNotFoundError):
        import solo.methods.nnclr  # noqa: F401


def test_a_second_installation_changes_nothing():
    def modules():
        return {name: m for name, m in sys.modules.items() if name.startswith("solo.")}

    before = modules()
    solo_1_0_2.install()
    assert modules() == before
    assert sys.modules["solo.methods.simclr"].SimCLR is SimCLR


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("backbone.name=convnext_tiny", "The backbone 'convnext_tiny'"),
        ("backbone.name=swin_tiny", "The backbone 'swin_tiny'"),
        ("backbone.name=vit_tiny", "The ViT of MoCo v3"),
        ("optimizer.name=lars", "optimizer.name=lars"),
        ("optimizer.exclude_bias_n_norm_wd=true", "optimizer.exclude_bias_n_norm_wd"),
        ("optimizer.layer_decay=0.5", "optimizer.layer_decay"),
    ],
)
def test_what_the_release_lacks_names_the_version_that_has_it(config, setting, named):
    cfg = config("mocov3_margin", setting)
    sentence = (
        f"{named} is not offered with solo-learn 1.0.2 from the package registry; "
        "solo-learn's repository (1.0.6 or later) has it."
    )
    with pytest.raises(NotImplementedError) as error:
        METHODS["mocov3_margin"](cfg)
    assert str(error.value) == sentence
    if not setting.startswith("backbone"):
        with pytest.raises(NotImplementedError) as error:
            LinearModel(torch.nn.Identity(), cfg)
        assert str(error.value) == sentence


def test_a_lightning_that_is_loaded_already_is_not_mixed_in(python):
    python(
        "-c",
        "import pytorch_lightning as other\n"
        "import solo_margins\n"
        "solo_margins.register()\n"
        "import lightning.pytorch as pl\n"
        "from solo.methods.simclr import SimCLR\n"
        "assert issubclass(SimCLR, pl.LightningModule)\n"
        "assert not issubclass(SimCLR, other.LightningModule)\n"
        "import sys\n"
        "assert sys.modules['pytorch_lightning'] is other and 'pl_bolts' not in sys.modules\n",
    )


def test_a_setting_that_the_release_needs_is_named(config):
    cfg = config("simclr")
    del cfg.method_kwargs.temperature
    with pytest.raises(ValueError, match=r"method_kwargs\.temperature"):
        SimCLR(cfg)


def test_devices_and_defaults_of_a_parsed_configuration(config):
    cfg = config("simclr_margin", "devices=2")
    assert cfg.devices == [0, 1]
    assert cfg.optimizer.lr == pytest.approx(0.5 * 8 * 2 / 256)
    assert cfg.optimizer.classifier_lr == pytest.approx(0.25 * 8 * 2 / 256)
    assert cfg.optimizer.kwargs.momentum == 0.9
    assert cfg.data.num_classes == 3
    assert (cfg.data.num_large_crops, cfg.data.num_small_crops) == (2, 0)
    assert (cfg.seed, cfg.strategy, cfg.num_nodes) == (5, "auto", 1)
    with pytest.raises(ValueError, match=r"data\.dataset"):
        config("simclr_margin", "data.dataset=nonsense")
