"""The margin methods in real trainers: the host's own at default margins, another gradient else."""

import math

import pytest
from method_parents import PARENTS, needs
from omegaconf import OmegaConf
from solo.args.pretrain import parse_cfg as parse_pretrain_cfg
from solo.methods import METHODS

from solo_margins.losses import Margins

SOME = ["method_kwargs.margins.positive_scale=5", "method_kwargs.margins.curvature=1.5"]


def test_default_margins_train_the_hosts_own_method(train, largest_difference, any_method):
    settings = needs(any_method)
    parent, _ = PARENTS[any_method]
    if parent in ("simsiam", "nnsiam"):
        # solo-learn's first step has the first rate of the warm-up also where it is not scheduled.
        settings = [*settings, "scheduler.name=none"]
    ours, trainer = train(any_method, *settings)
    assert trainer.global_step >= 3
    # DeepCluster's k-means works in float32, so that its prototypes are not quite unit vectors.
    tolerance = 1e-6 if parent == "deepclusterv2" else 1e-9
    plain, other = train(parent, *settings)
    assert largest_difference(ours, plain) < tolerance
    # All that solo-learn logs is logged, under the same name and with the same value.
    for name, value in other.callback_metrics.items():
        logged = trainer.callback_metrics[name].item()
        assert logged == pytest.approx(value.item(), rel=1e-5, abs=1e-9), name


def test_margins_change_what_is_learnt(train, largest_difference, any_method):
    settings = needs(any_method)
    plain, _ = train(any_method, *settings)
    assert largest_difference(plain, train(any_method, *settings, *SOME)[0]) > 1e-5


@pytest.mark.parametrize("ours", ["simclr_margin", "byol_curv"])
def test_small_crops_take_part_as_in_the_hosts_method(train, largest_difference, view, ours):
    views = [view(), view(crop_size=8, num_crops=3)]
    with_crops = train(ours, views=views)[0]
    assert with_crops.num_crops == 5
    assert largest_difference(with_crops, train(PARENTS[ours][0], views=views)[0]) < 1e-9


@pytest.mark.parametrize("then", ["mocov3", "mocov3_margin"])
def test_a_checkpoint_continues_as_the_other_method(train, largest_difference, tmp_path, then):
    # solo-learn's own schedule cannot go on where its warm-up was as long as the run.
    constant = "scheduler.name=none"
    for first in ("mocov3", "mocov3_margin"):
        model, lightning = train(first, constant)
        lightning.save_checkpoint(tmp_path / f"{first}.ckpt")
    # Both hold the same weights, so that the same method continues them alike.
    of_parent, again = train(then, constant, start=tmp_path / "mocov3.ckpt", max_epochs=2)
    of_ours, _ = train(then, constant, start=tmp_path / "mocov3_margin.ckpt", max_epochs=2)
    assert again.global_step == 6
    assert largest_difference(of_parent, of_ours) < 1e-9
    assert largest_difference(of_parent, model) > 1e-6


@pytest.mark.parametrize(
    "name",
    [
        "resnet18",
        "resnet50",
        pytest.param("vit_tiny", marks=pytest.mark.repository),
        "narrow_resnet18",
        "cifar_resnet18",
    ],
)
def test_real_backbones_train(train, name):
    settings = ["method_kwargs.margins.positive_scale=2", f"backbone.name={name}"]
    if name.startswith("vit"):
        settings += ["backbone.kwargs.img_size=16", "backbone.kwargs.patch_size=8"]
    model, _ = train("mocov3_margin", *settings, "optimizer.batch_size=4")
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_margins_reach_the_method_and_are_written_out(config):
    cfg = config("mocov3_margin", "method_kwargs.margins.curvature=.inf", SOME[0])
    model = METHODS["mocov3_margin"](cfg)
    assert model.margins == Margins(positive_scale=5.0)
    assert model.cfg.method_kwargs.margins.angular == 0.0
    assert math.isinf(model.cfg.method_kwargs.margins.curvature)


def test_only_a_method_with_a_queue_asks_for_batches_that_fill_it(composed, any_method):
    needs(any_method)
    cfg = composed(f"{any_method}.yaml", "optimizer.batch_size=100")
    OmegaConf.set_struct(cfg, False)
    cfg = parse_pretrain_cfg(cfg)
    has_queue = any_method in ("mocov2plus_margin", "nnclr_margin", "nnsiam_curv", "nnbyol_curv")
    assert ("queue_size" in cfg.method_kwargs) == has_queue
    if has_queue:
        with pytest.raises(ValueError, match=r"queue_size must be a multiple of .*=100, got 1024"):
            METHODS[any_method].add_and_assert_specific_cfg(cfg)
    else:
        METHODS[any_method].add_and_assert_specific_cfg(cfg)


@pytest.mark.parametrize(
    ("method", "override", "message"),
    [
        (
            "mocov3_margin",
            "method_kwargs.margins.scale=3",
            "method_kwargs.margins has no setting 'scale'; its settings are angular, ",
        ),
        (
            "mocov3_margin",
            "method_kwargs.margins=3",
            "method_kwargs.margins must hold angular, subtractive, ",
        ),
        (
            "simclr_margin",
            "method_kwargs.margins.attenuation=1.5",
            "method_kwargs.margins.attenuation must be a number in [0, 1], got 1.5",
        ),
        (
            "byol_curv",
            "method_kwargs.margins.attenuation=0.5",
            "method=byol_curv has no negatives: leave out method_kwargs.margins.attenuation ",
        ),
        (
            "simsiam_curv",
            "method_kwargs.schedules.attenuation={to: 0.5}",
            "method=simsiam_curv has no negatives: leave out method_kwargs.margins.attenuation ",
        ),
        (
            "mocov3_margin",
            "method_kwargs.margin.angular=0.5",
            "method_kwargs of method=mocov3_margin has no setting 'margin'; did you mean margins?",
        ),
        (
            "mocov3_margin",
            "method_kwargs.margins.curvature=wide",
            "method_kwargs.margins.curvature must be a number > 0 or infinite, got 'wide'",
        ),
        (
            "byol_curv",
            "method_kwargs.negatives.kind=hard",
            "method_kwargs of method=byol_curv has no setting 'negatives'",
        ),
        (
            "mocov3_margin",
            "method_kwargs.negatives.kind=soft",
            "method_kwargs.negatives.kind must be one of standard, debiased, hard, got 'soft'",
        ),
        (
            "simclr_margin",
            "method_kwargs.negatives.tau_plus=1",
            "method_kwargs.negatives.tau_plus must be a number in [0, 1), got 1",
        ),
        (
            "simclr_margin",
            "method_kwargs.polarization={weight: 1, lower: 0.5, upper: 0.2}",
            "method_kwargs.polarization.lower must be a number with 0 < lower < upper < 1",
        ),
        (
            "byol_curv",
            "method_kwargs.polarization.weight=-1",
            "method_kwargs.polarization.weight must be a number >= 0, got -1",
        ),
        (
            "nnclr_margin",
            "method_kwargs.queue_size=12",
            "method_kwargs.queue_size must be a multiple of optimizer.batch_size=8, got 12",
        ),
        (
            "mocov3_margin",
            "method_kwargs.symmetric=perhaps",
            "method_kwargs.symmetric must be true or false, got 'perhaps'",
        ),
        (
            "mocov3_margin",
            "method_kwargs.freeze_patch_embedding=true",
            "method_kwargs.freeze_patch_embedding=true needs a ViT as backbone.name, "
            "got 'tiny_resnet_like'",
        ),
    ],
)
def test_impossible_settings_fail_before_training(config, method, override, message):
    needs(method)
    cfg = config(method, override)
    with pytest.raises(ValueError) as caught:
        METHODS[method](cfg)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("setting", "reader"),
    [
        ("negatives.beta=2", "negatives.kind=hard"),
        ("negatives.tau_plus=0.2", "negatives.kind=debiased"),
        ("margins.curve=root", "margins.curvature=1"),
        ("margins.curve=root", "schedules.curvature={from: 4, to: 1}"),
        ("margins.attenuation_type=II", "margins.attenuation=0.5"),
        ("margins.attenuation_type=II", "schedules.attenuation={to: 0.5}"),
        ("margins.beyond_pi=monotone", "margins.angular=0.5"),
        ("polarization.lower=0.3", "polarization.weight=1"),
        ("polarization.upper=0.5", "schedules.polarization_weight={to: 1}"),
    ],
)
def test_a_setting_that_the_others_leave_without_effect_is_refused(config, setting, reader):
    method = METHODS["simclr_margin"]
    name = setting.partition("=")[0]
    with pytest.raises(ValueError, match=rf"^method_kwargs\.{name}=.* has no effect"):
        method.add_and_assert_specific_cfg(config("simclr_margin", f"method_kwargs.{setting}"))
    given = [f"method_kwargs.{each}" for each in (setting, reader)]
    method.add_and_assert_specific_cfg(config("simclr_margin", *given))


def test_beta_has_no_effect_on_debiased_negatives(config):
    given = ("method_kwargs.negatives.kind=debiased", "method_kwargs.negatives.beta=2")
    with pytest.raises(ValueError, match=r"^method_kwargs\.negatives\.beta=2 has no effect"):
        METHODS["simclr_margin"].add_and_assert_specific_cfg(config("simclr_margin", *given))
