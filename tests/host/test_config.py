"""Configurations as either version of solo-learn parses them."""

import pytest
import torch
from host_internals import needs_the_repository

from solo_margins import host


def test_defaults_crops_classes_and_scaled_rates(config):
    cfg = config("mocov3")
    assert cfg.data.num_classes == 3
    assert (cfg.data.num_large_crops, cfg.data.num_small_crops) == (2, 0)
    assert cfg.optimizer.lr == pytest.approx(0.5 * 8 / 256)
    assert cfg.optimizer.classifier_lr == pytest.approx(0.25 * 8 / 256)
    assert cfg.optimizer.kwargs.momentum == 0.9
    assert (cfg.seed, cfg.strategy, cfg.num_nodes) == (5, "auto", 1)
    assert cfg.checkpoint.frequency == 1
    assert cfg.auto_resume.enabled is False
    assert cfg.wandb.enabled is False
    assert cfg.data.format == "image_folder"


@pytest.mark.parametrize(
    ("accelerator", "devices", "expected", "processes"),
    [
        ("cpu", "[0]", "1", 1),
        ("cpu", "'1'", "1", 1),
        ("cpu", "2", "02", 2),
        ("cpu", "[0,1]", "02", 2),
        ("gpu", "2", [0, 1], 2),
        ("gpu", "[1]", [1], 1),
    ],
)
def test_devices_suit_both_the_host_and_lightning(
    config, accelerator, devices, expected, processes
):
    cfg = config("simclr", f"accelerator={accelerator}", f"devices={devices}")
    assert cfg.devices == expected
    assert cfg.optimizer.lr == pytest.approx(0.5 * 8 * processes / 256)
    if accelerator == "cpu":
        assert host.pl.accelerators.CPUAccelerator.parse_devices(cfg.devices) == processes


@needs_the_repository
def test_lars_gets_its_settings(config):
    cfg = config("simclr", "optimizer.name=lars", "optimizer.kwargs.eta=0.02")
    assert cfg.optimizer.kwargs == {
        "momentum": 0.9,
        "eta": 0.02,
        "clip_lr": False,
        "exclude_bias_n_norm": False,
    }


def test_statistics_of_all_gpus_need_no_gpu_where_there_is_one_process(config, loaders, trainer):
    weights = []
    for shared in ("false", "true"):
        cfg = config("simclr", "max_epochs=1", f"sync_batchnorm={shared}")
        host.pl.seed_everything(1)
        model = host.METHODS["simclr"](cfg)
        train, _ = loaders(cfg)
        lightning = trainer(cfg, sync_batchnorm=cfg.sync_batchnorm, limit_val_batches=0)
        lightning.fit(model, train)
        assert lightning.global_step > 0
        weights.append(model.state_dict())
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


def test_an_unknown_data_set_is_refused(raw_config):
    with pytest.raises((ValueError, AssertionError)):
        host.parse_pretrain_cfg(raw_config("simclr", "data.dataset=nonsense"))


def test_a_linear_configuration(raw_config):
    cfg = raw_config("mocov3", "pretrained_feature_extractor=x.ckpt", "pretrain_method=mocov3")
    del cfg["augmentations"]
    cfg.data.augmentations = {"crop_size": 16}
    cfg = host.parse_linear_cfg(cfg)
    assert cfg.optimizer.lr == pytest.approx(0.5 * 8 / 256)
    assert cfg.data.num_classes == 3
    assert (cfg.mixup, cfg.cutmix, cfg.label_smoothing, cfg.auto_augment) == (0, 0, 0, False)
