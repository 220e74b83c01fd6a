"""Data sets as configurations: the protocol of the papers, plain numbers, the same keys."""

import json
import os

import pytest
from omegaconf import OmegaConf

import solo_margins  # noqa: F401  (makes its configurations known)
from solo_margins.resolvers import data_workers

SMALL = ("cifar10", "cifar100", "stl10", "tinyimagenet")
LARGE = ("imagenet", "imagenet100")
EVERY = (*SMALL, *LARGE, "digits", "folder")


def configured(composed, method, data, *overrides):
    given = () if data == "digits" else ("data.train_path=/images",)
    return composed(f"{method}.yaml", f"data={data}", "variant=baseline", *given, *overrides)


@pytest.mark.parametrize("method", ["mocov3_margin", "simclr_margin", "byol_curv"])
@pytest.mark.parametrize("data", SMALL)
def test_small_images_follow_the_papers_protocol(composed, method, data):
    cfg = configured(composed, method, data)
    size = 32 if data.startswith("cifar") else 64
    strong, weak = cfg.augmentations
    for view in (strong, weak):
        assert (view.crop_size, view.num_crops) == (size, 1)
        assert (view.rrc.crop_min_scale, view.rrc.crop_max_scale) == (0.2, 1.0)
        assert view.horizontal_flip.prob == 0.5
        assert view.solarization.prob == view.equalization.prob == 0
        assert len(view.mean) == len(view.std) == 3
        assert (view.mean, view.std) == (cfg.image.mean, cfg.image.std)
    assert dict(strong.color_jitter) == {
        "prob": 0.8,
        "brightness": 0.4,
        "contrast": 0.4,
        "saturation": 0.4,
        "hue": 0.1,
    }
    assert (strong.grayscale.prob, strong.gaussian_blur.prob) == (0.2, 0.5)
    assert weak.color_jitter.prob == weak.grayscale.prob == weak.gaussian_blur.prob == 0
    optimizer = cfg.optimizer
    assert (optimizer.name, optimizer.kwargs.momentum, optimizer.kwargs.betas) == ("sgd", 0.9, None)
    assert (optimizer.lr, optimizer.batch_size, optimizer.weight_decay) == (0.06, 256, 5e-4)
    schedule = cfg.scheduler
    assert (schedule.warmup_epochs, schedule.warmup_start_lr, schedule.min_lr) == (5, 0, 0)
    assert cfg.max_epochs == 200
    heads = cfg.method_kwargs
    assert (heads.proj_hidden_dim, heads.proj_output_dim) == (2048, 128)
    if method == "simclr_margin":
        assert "pred_hidden_dim" not in heads
    else:
        assert heads.pred_hidden_dim == 2048
    if method == "byol_curv":
        assert "temperature" not in heads
    else:
        assert heads.temperature == 0.25
    tau = 0.99 if data.startswith("cifar") else 0.996
    if method == "simclr_margin":
        assert "momentum" not in cfg
    else:
        assert cfg.momentum.base_tau == cfg.momentum.final_tau == tau
    if method == "simclr_margin":
        assert heads.proj_batch_norm is True
        assert "symmetric" not in heads
    else:
        assert heads.symmetric is False
    assert cfg.backbone.name == ("cifar_resnet18" if size == 32 else "pooled_resnet18")


def test_imagenet_has_the_published_settings_of_each_method(composed):
    moco = configured(composed, "mocov3_margin", "imagenet")
    assert (moco.backbone.name, moco.max_epochs, moco.data.format) == ("resnet50", 100, "dali")
    assert (moco.optimizer.name, moco.optimizer.batch_size) == ("lars", 4096)
    assert (moco.optimizer.lr, moco.optimizer.weight_decay) == (0.6, 1e-6)
    assert moco.optimizer.kwargs.exclude_bias_n_norm
    assert (moco.method_kwargs.temperature, moco.method_kwargs.proj_output_dim) == (1.0, 256)
    assert (moco.momentum.base_tau, moco.momentum.final_tau) == (0.99, 1.0)
    assert [view.gaussian_blur.prob for view in moco.augmentations] == [1.0, 0.1]
    assert [view.solarization.prob for view in moco.augmentations] == [0.0, 0.2]
    assert moco.method_kwargs.symmetric is True

    simclr = configured(composed, "simclr_margin", "imagenet")
    [view] = simclr.augmentations
    assert (view.num_crops, view.gaussian_blur.prob) == (2, 0.5)
    assert view.color_jitter.brightness == 0.8
    assert (simclr.optimizer.lr, simclr.optimizer.weight_decay) == (0.3, 1e-6)
    heads = simclr.method_kwargs
    assert (heads.proj_hidden_dim, heads.proj_output_dim, heads.temperature) == (2048, 128, 0.1)
    assert heads.proj_batch_norm is heads.proj_last_batch_norm is True
    other = configured(composed, "simclr_margin", "imagenet100")
    assert len(other.augmentations) == 2, "SimCLR's own settings are those on ImageNet only"
    assert other.method_kwargs.proj_last_batch_norm is False


@pytest.mark.parametrize("method", ["mocov3_margin", "simclr_margin"])
def test_the_probe_on_imagenet_is_mocov3s(composed, tmp_path, method):
    """MoCo v3 was pretrained with crops from 0.2, SimCLR with crops from 0.08."""
    cfg = configured(composed, method, "imagenet")
    (tmp_path / "args.json").write_text(json.dumps(OmegaConf.to_container(cfg, resolve=True)))
    checkpoint = f"pretrained_feature_extractor={tmp_path}"
    probe = composed("linear.yaml", "data=imagenet", "data.train_path=/images", checkpoint)
    assert (probe.optimizer.name, probe.optimizer.lr, probe.optimizer.weight_decay) == (
        "sgd",
        0.1,
        0.0,
    )
    assert (probe.optimizer.kwargs.momentum, probe.max_epochs) == (0.9, 90)
    assert probe.data.augmentations.crop_min_scale == 0.08
    elsewhere = composed("linear.yaml", "data=imagenet100", "data.train_path=/images", checkpoint)
    assert (elsewhere.optimizer.lr, elsewhere.max_epochs) == (1.0, 100)
    smallest = cfg.augmentations[0].rrc.crop_min_scale
    assert elsewhere.data.augmentations.crop_min_scale == smallest


@pytest.mark.parametrize("data", EVERY)
def test_every_data_set_has_the_same_settings(composed, data):
    plain = configured(composed, "mocov3_margin", data)
    assert plain.data.download is False
    # Of all GPUs where recipes are for several; a literal, as solo-learn does not resolve it.
    assert OmegaConf.to_container(plain, resolve=False)["sync_batchnorm"] is (data in LARGE)
    settings = (
        "data.val_path=/val",
        "data.format=dali",
        "data.num_workers=0",
        "data.no_labels=true",
        "data.fraction=0.1",
        "data.download=true",
        "data.unlabelled_folder=more",
        "image.size=24",
        "image.mean=[0.1,0.2,0.3]",
        "protocol.symmetric=true",
        "protocol.batch_norm_heads=false",
        "optimizer.kwargs.momentum=0.8",
    )
    cfg = configured(composed, "simclr_margin", data, *settings)
    assert cfg.data.name == data
    assert {view.crop_size for view in cfg.augmentations} == {24}
    assert list(cfg.augmentations[0].mean) == [0.1, 0.2, 0.3]


def test_a_probe_takes_plain_numbers_from_the_checkpoint(composed, tmp_path):
    pretrained = OmegaConf.to_container(configured(composed, "byol_curv", "stl10"), resolve=True)
    (tmp_path / "args.json").write_text(json.dumps(pretrained))
    checkpoint = f"pretrained_feature_extractor={tmp_path}"
    cfg = composed("linear.yaml", "data=cifar10", "data.train_path=/images", checkpoint)
    assert OmegaConf.to_container(cfg.data.augmentations, resolve=True) == {
        "crop_size": 64,
        "crop_min_scale": 0.2,
        "flip_prob": 0.5,
        "mean": [0.4914, 0.4823, 0.4466],
        "std": [0.247, 0.243, 0.261],
    }
    assert (cfg.optimizer.name, cfg.max_epochs) == ("sgd", 100)
    del pretrained["augmentations"][0]["mean"]
    (tmp_path / "args.json").write_text(json.dumps(pretrained))
    assert composed("linear.yaml", checkpoint).data.augmentations.mean is None


ONE_CORE = """
import json, os
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
from solo_margins.resolvers import composed
cfg = composed("simclr_margin.yaml", ["data=cifar10", "data.train_path=/images"])
print(json.dumps(cfg.data.num_workers))
"""


def test_there_are_no_more_data_workers_than_cores(answer, composed):
    assert answer(ONE_CORE) == 1
    cores = len(os.sched_getaffinity(0))
    assert configured(composed, "simclr_margin", "cifar10").data.num_workers == min(4, cores)
    shared = configured(composed, "simclr_margin", "cifar10", "devices=[0,1]")
    assert shared.data.num_workers == max(1, min(4, cores // 2))


@pytest.mark.parametrize("devices", [1000, "1000", "0,1,2,3", list(range(1000))])
def test_every_device_has_a_data_worker(devices):
    assert data_workers(devices) >= 1
    if "," not in str(devices):
        assert data_workers(devices) == 1
