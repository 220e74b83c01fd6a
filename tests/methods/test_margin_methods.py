"""The margin methods in real trainers: the host's own at default margins, another gradient else."""

import math
import re

import pytest
from method_parents import PARENTS, needs
from omegaconf import OmegaConf
from solo.args.pretrain import parse_cfg as parse_pretrain_cfg
from solo.methods import METHODS

from solo_margins.losses import Margins


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
    settings = ["method_kwargs.margins.curvature=.inf", "method_kwargs.margins.positive_scale=5"]
    cfg = config("mocov3_margin", *settings)
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
            METHODS[any_method].read_settings(cfg)
    else:
        METHODS[any_method].read_settings(cfg)


@pytest.mark.repository
@pytest.mark.parametrize(
    ("devices", "processes"), [(3, 3), ("3", 3), ("0,1,2", 3), ([0, 1], 2), ("1", 1), (None, 1)]
)
def test_a_queue_takes_the_batches_of_all_processes(config, devices, processes):
    needs("nnclr_margin")
    cfg = config("nnclr_margin", "optimizer.batch_size=4")
    cfg.devices = devices
    for multiple in (2, 3):
        cfg.method_kwargs.queue_size = 4 * multiple
        if multiple % processes == 0:
            METHODS["nnclr_margin"].read_settings(cfg)
        else:
            with pytest.raises(ValueError, match=f"=4 times {processes} processes, got"):
                METHODS["nnclr_margin"].read_settings(cfg)


@pytest.mark.parametrize(
    ("method", "override", "named"),
    [
        ("mocov3_margin", "margins.scale=3", "margins has no setting 'scale'"),
        ("mocov3_margin", "margins=3", "margins must hold"),
        ("simclr_margin", "margins.attenuation=1.5", "margins.attenuation"),
        ("byol_curv", "margins.attenuation=0.5", "margins.attenuation"),
        ("byol_curv", "schedules.attenuation={to: 0.5}", "schedules.attenuation"),
        ("byol_curv", "schedules.temperature={to: 0.5}", "schedules.temperature"),
        ("mocov3_margin", "margin.angular=0.5", "did you mean margins?"),
        ("mocov3_margin", "margins.curvature=wide", "margins.curvature"),
        ("byol_curv", "negatives.kind=hard", "'negatives'"),
        ("mocov3_margin", "negatives.kind=soft", "negatives.kind"),
        ("simclr_margin", "negatives.tau_plus=1", "negatives.tau_plus"),
        ("simclr_margin", "negatives={kind: gaussian, mean: 2}", "negatives.mean"),
        ("simclr_margin", "negatives={kind: gaussian, width: 0}", "negatives.width"),
        ("simclr_margin", "polarization={weight: 1, lower: 0.5, upper: 0.2}", "polarization.lower"),
        ("byol_curv", "polarization.weight=-1", "polarization.weight"),
        ("nnclr_margin", "queue_size=12", "queue_size must be a multiple"),
        ("wmse_curv", "whitening_size=3", "whitening_size=3, got 8"),
        ("wmse_curv", "whitening_size=0", "whitening_size"),
        ("wmse_curv", "whitening_iters=0", "whitening_iters"),
        ("mocov3_margin", "temperature=0", "temperature"),
        ("mocov3_margin", "symmetric=perhaps", "symmetric"),
        ("mocov3_margin", "scale_by_temperature=2", "scale_by_temperature"),
        ("simclr_margin", "proj_batch_norm=1", "proj_batch_norm"),
        ("simclr_margin", "proj_last_batch_norm=some", "proj_last_batch_norm"),
        ("mocov3_margin", "freeze_patch_embedding=true", "freeze_patch_embedding=true needs a ViT"),
    ],
)
def test_impossible_settings_fail_before_training(config, method, override, named):
    needs(method)
    cfg = config(method, f"method_kwargs.{override}")
    with pytest.raises(ValueError, match=rf"method_kwargs.*{re.escape(named)}"):
        METHODS[method](cfg)


@pytest.mark.parametrize(
    ("setting", "reader"),
    [
        ("negatives.beta=2", "negatives.kind=hard"),
        ("negatives.tau_plus=0.2", "negatives.kind=debiased"),
        ("negatives.mean=0.5", "negatives.kind=gaussian"),
        ("negatives.width=0.5", "negatives.kind=gaussian"),
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
        method.read_settings(config("simclr_margin", f"method_kwargs.{setting}"))
    given = [f"method_kwargs.{each}" for each in (setting, reader)]
    method.read_settings(config("simclr_margin", *given))


@pytest.mark.parametrize(
    ("kind", "unread"),
    [("debiased", "beta=2"), ("debiased", "mean=0.1"), ("hard", "width=3"), ("gaussian", "beta=2")],
)
def test_a_field_that_a_kind_of_negatives_does_not_read_is_refused(config, kind, unread):
    given = (f"method_kwargs.negatives.kind={kind}", f"method_kwargs.negatives.{unread}")
    with pytest.raises(ValueError, match=rf"^method_kwargs\.negatives\.{unread} has no effect"):
        METHODS["simclr_margin"](config("simclr_margin", *given))


def test_absent_settings_get_their_defaults_and_are_recorded(config):
    """Once: a second method of the completed configuration has the same settings."""
    cfg = config("mocov3_margin", "method_kwargs.schedules.angular={to: 0.5}")
    settings = METHODS["mocov3_margin"](cfg).margin_settings
    kwargs = cfg.method_kwargs
    assert (kwargs.symmetric, kwargs.scale_by_temperature) == (True, True)
    assert (kwargs.freeze_patch_embedding, kwargs.simulated_ranks) == (False, 1)
    assert kwargs.negatives.kind == "standard"
    assert kwargs.schedules.angular["from"] == 0.0
    assert "proj_batch_norm" not in kwargs, "it has no effect here"
    assert METHODS["mocov3_margin"](cfg).margin_settings == settings


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("momentum.base_tau=1.5", "base_tau"),
        ("momentum.final_tau=-0.1", "final_tau"),
        ("momentum.base_tau=much", "base_tau"),
        ("momentum.classifier=2", "classifier"),
        ("momentum.tau=0.9", "'tau'"),
    ],
)
def test_impossible_settings_of_a_teacher(config, setting, named):
    with pytest.raises(ValueError, match=rf"^momentum.*{named}"):
        METHODS["byol_curv"](config("byol_curv", setting))


def test_margins_are_short_for_those_in_method_kwargs(composed, config):
    cfg = composed("simclr_margin.yaml", "margins.positive_scale=20", "margins.curvature=inf")
    assert cfg.method_kwargs.margins.positive_scale == 20
    assert cfg.method_kwargs.margins.angular == 0.5, "that of the variant"
    # In a configuration of one's own it is the same.
    model = METHODS["simclr_margin"](config("simclr_margin", "margins.positive_scale=20"))
    assert model.margins == Margins(positive_scale=20.0)
    assert "margins" not in model.cfg
    both = ["margins.positive_scale=20", "method_kwargs.margins.positive_scale=20"]
    assert METHODS["simclr_margin"](config("simclr_margin", *both)).margins == model.margins


@pytest.mark.parametrize("short", ["positive_scale=20", "positive_skale=2"])
def test_other_margins_in_the_short_form_are_refused(config, short):
    settings = [f"margins.{short}", "method_kwargs.margins.positive_scale=2"]
    with pytest.raises(ValueError, match=rf"^margins.*{short.partition('=')[0]}"):
        METHODS["simclr_margin"](config("simclr_margin", *settings))
