"""The margin methods in real trainers: the host's own at default margins, another gradient else."""

import math

import pytest

from solo_margins import host
from solo_margins.losses import Margins

PAIRS = {"mocov3_margin": "mocov3", "simclr_margin": "simclr", "byol_curv": "byol"}
SOME = ["method_kwargs.margins.positive_scale=5", "method_kwargs.margins.curvature=1.5"]


@pytest.fixture
def train(raw_config, loaders, trainer):
    """Train three steps in float64 from one seed and return the method."""

    def run(method, *overrides, start=None, views=None, **settings):
        cfg = raw_config(method, "max_epochs=1", *overrides)
        if views is not None:
            cfg.augmentations = views
        cfg = host.parse_pretrain_cfg(cfg)
        host.pl.seed_everything(3, verbose=False)
        model = host.METHODS[method](cfg).double()
        host.pl.seed_everything(4, verbose=False)
        train_loader, _ = loaders(cfg)
        options = {"precision": "64-true", "limit_train_batches": 3, "limit_val_batches": 0}
        lightning = trainer(cfg, **{**options, **settings})
        lightning.fit(model, train_loader, ckpt_path=start)
        assert lightning.global_step >= 3
        return model, lightning

    return run


def largest_difference(one, other):
    first, second = one.state_dict(), other.state_dict()
    assert first.keys() == second.keys()
    return max((first[key] - second[key]).abs().max().item() for key in first)


@pytest.mark.parametrize(("ours", "hosts"), PAIRS.items())
def test_default_margins_train_the_hosts_own_method(train, ours, hosts):
    assert largest_difference(train(ours)[0], train(hosts)[0]) < 1e-9


@pytest.mark.parametrize("ours", PAIRS)
def test_margins_change_what_is_learnt(train, ours):
    assert largest_difference(train(ours)[0], train(ours, *SOME)[0]) > 1e-5


@pytest.mark.parametrize("ours", ["simclr_margin", "byol_curv"])
def test_small_crops_take_part_as_in_the_hosts_method(train, view, ours):
    views = [view(), view(crop_size=8, num_crops=3)]
    with_crops = train(ours, views=views)[0]
    assert with_crops.num_crops == 5
    assert largest_difference(with_crops, train(PAIRS[ours], views=views)[0]) < 1e-9


@pytest.mark.parametrize(
    ("first", "then"), [("mocov3", "mocov3_margin"), ("mocov3_margin", "mocov3")]
)
def test_a_checkpoint_continues_as_the_other_method(train, tmp_path, first, then):
    model, lightning = train(first)
    lightning.save_checkpoint(tmp_path / "three.ckpt")
    continued, again = train(then, start=tmp_path / "three.ckpt", max_epochs=2)
    assert again.global_step == 6
    # The same six steps by one method alone end at the same weights.
    reference, _ = train(first, start=tmp_path / "three.ckpt", max_epochs=2)
    assert largest_difference(continued, reference) < 1e-9
    assert largest_difference(continued, model) > 1e-6


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "vit_tiny", "narrow_resnet18"])
def test_real_backbones_train(train, name):
    settings = ["method_kwargs.margins.positive_scale=2", f"backbone.name={name}"]
    if name.startswith("vit"):
        settings += ["backbone.kwargs.img_size=16", "backbone.kwargs.patch_size=8"]
    model, _ = train("mocov3_margin", *settings, "optimizer.batch_size=4")
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_margins_reach_the_method_and_are_written_out(config):
    cfg = config("mocov3_margin", "method_kwargs.margins.curvature=.inf", SOME[0])
    model = host.METHODS["mocov3_margin"](cfg)
    assert model.margins == Margins(positive_scale=5.0)
    assert model.cfg.method_kwargs.margins.angular == 0.0
    assert math.isinf(model.cfg.method_kwargs.margins.curvature)


@pytest.mark.parametrize(
    ("method", "override", "message"),
    [
        (
            "mocov3_margin",
            "method_kwargs.margins.scale=3",
            "method_kwargs.margins has no field 'scale'; its fields are angular, ",
        ),
        (
            "simclr_margin",
            "method_kwargs.margins.attenuation=1.5",
            "method_kwargs.margins.attenuation must be a number in [0, 1], got 1.5",
        ),
        (
            "byol_curv",
            "method_kwargs.margins.attenuation=0.5",
            "method_kwargs.margins.attenuation must be 0 for method=byol_curv",
        ),
        (
            "mocov3_margin",
            "method_kwargs.margin.angular=0.5",
            "method_kwargs has no setting 'margin' for method=mocov3_margin; its settings are ",
        ),
        (
            "mocov3_margin",
            "method_kwargs.margins.curvature=wide",
            "method_kwargs.margins.curvature must be a number > 0 or infinite, got 'wide'",
        ),
    ],
)
def test_impossible_settings_fail_before_training(config, method, override, message):
    cfg = config(method, override)
    with pytest.raises(ValueError) as caught:
        host.METHODS[method](cfg)
    assert str(caught.value).startswith(message)
