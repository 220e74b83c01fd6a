"""What is particular to release 1.0.2 from the package registry."""

import pytest
import torch

from solo_margins import host

pytestmark = pytest.mark.skipif(host.FORM != "pypi", reason="solo-learn's repository is in use")


@pytest.mark.parametrize("name", ["dino", "wmse", "mae", "supcon", "nnclr", "simsiam"])
def test_a_method_that_the_release_lacks_names_the_version_that_has_it(name):
    assert name not in host.METHODS
    with pytest.raises(NotImplementedError, match=f"'{name}'.*repository") as error:
        host.METHODS[name]
    assert str(error.value).count(". ") == 0
    with pytest.raises(NotImplementedError, match=name):
        getattr(host, name.upper())
    with pytest.raises(KeyError):
        host.METHODS["nonsense"]


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("backbone.name=convnext_tiny", "The backbone 'convnext_tiny'"),
        ("backbone.name=swin_tiny", "The backbone 'swin_tiny'"),
        ("backbone.name=vit_tiny", "The ViT of MoCo v3"),
        ("optimizer.name=lars", "optimizer.name=lars"),
        ("optimizer.exclude_bias_n_norm_wd=true", "optimizer.exclude_bias_n_norm_wd"),
        ("optimizer.layer_decay=0.5", "optimizer.layer_decay"),
        ("scheduler.name=reduce", "scheduler.name=reduce"),
        ("scheduler.name=exponential", "scheduler.name=exponential"),
    ],
)
def test_what_the_release_lacks_names_the_version_that_has_it(config, setting, named):
    cfg = config("mocov3_margin", setting)
    sentence = (
        f"{named} is not offered with solo-learn 1.0.2 from the package registry; "
        "solo-learn's repository (1.0.6 or later) has it."
    )
    with pytest.raises(NotImplementedError) as error:
        host.METHODS["mocov3_margin"](cfg)
    assert str(error.value) == sentence
    if not setting.startswith("backbone"):
        with pytest.raises(NotImplementedError) as error:
            host.LinearModel(torch.nn.Identity(), cfg)
        assert str(error.value) == sentence


def test_the_schedules_of_the_release_take_steps(config, loaders, trainer):
    for changes in (
        ["scheduler.name=step", "scheduler.lr_decay_steps=[1]"],
        ["scheduler.name=none"],
    ):
        cfg = config("simclr", "max_epochs=2", *changes)
        run = trainer(cfg, limit_train_batches=1, limit_val_batches=0)
        run.fit(host.SimCLR(cfg), *loaders(cfg))
        rate = run.optimizers[0].param_groups[0]["lr"]
        assert rate == pytest.approx(cfg.optimizer.lr * (0.1 if len(changes) == 2 else 1))


def test_a_lightning_that_is_loaded_already_is_not_mixed_in(python):
    python(
        "-c",
        "import pytorch_lightning as other\n"
        "from solo_margins import host\n"
        "assert issubclass(host.SimCLR, host.pl.LightningModule)\n"
        "assert not issubclass(host.SimCLR, other.LightningModule)\n"
        "import sys\n"
        "assert sys.modules['pytorch_lightning'] is other and 'pl_bolts' not in sys.modules\n",
    )


def test_a_setting_that_the_release_needs_is_named(config):
    cfg = config("simclr")
    del cfg.method_kwargs.temperature
    with pytest.raises(ValueError, match=r"method_kwargs\.temperature"):
        host.SimCLR(cfg)
