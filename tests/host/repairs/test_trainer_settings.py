"""Parsed configurations hold a strategy and devices that Lightning 2 accepts."""

import pytest
import torch
from lightning.pytorch import Trainer
from omegaconf import OmegaConf
from solo.args.linear import parse_cfg as parse_linear
from solo.args.pretrain import parse_cfg as parse_pretraining

LR, BATCH = 0.5, 64


def configuration(tmp_path, **settings):
    cfg = {
        "name": "settings",
        "method": "simclr",
        "backbone": {"name": "resnet18"},
        "pretrained_feature_extractor": "some.ckpt",
        "data": {"dataset": "cifar10", "train_path": str(tmp_path), "val_path": str(tmp_path)},
        "augmentations": [{"crop_size": 32, "num_crops": 2}],
        "optimizer": {
            "name": "sgd",
            "batch_size": BATCH,
            "lr": LR,
            "classifier_lr": LR,
            "weight_decay": 0,
        },
        "scheduler": {"name": "none"},
        "max_epochs": 1,
        "accelerator": "cpu",
    }
    return OmegaConf.create({**cfg, **settings})


@pytest.mark.parametrize("parse", [parse_pretraining, parse_linear])
@pytest.mark.parametrize(
    ("devices", "processes"), [([0], 1), ([0, 1], 2), ("1", 1), (1, 1), (2, 2), (None, 1)]
)
def test_the_trainer_takes_what_was_parsed(tmp_path, parse, devices, processes):
    cfg = parse(configuration(tmp_path, devices=devices))
    trainer = Trainer(
        accelerator=cfg.accelerator,
        devices=cfg.devices,
        strategy=cfg.strategy,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    assert trainer.num_devices == processes
    assert cfg.optimizer.lr == pytest.approx(LR * BATCH * processes / 256)


@pytest.mark.parametrize("parse", [parse_pretraining, parse_linear])
@pytest.mark.parametrize("devices", [[0], "1", 1, None])
def test_the_trainer_takes_what_was_parsed_where_it_chooses_itself(tmp_path, parse, devices):
    cfg = parse(configuration(tmp_path, devices=devices, accelerator="auto"))
    trainer = Trainer(
        accelerator=cfg.accelerator,
        devices=cfg.devices,
        strategy=cfg.strategy,
        logger=False,
        enable_checkpointing=False,
    )
    assert trainer.num_devices == 1


@pytest.mark.parametrize("parse", [parse_pretraining, parse_linear])
@pytest.mark.parametrize("devices", [8, "8", "0,1,2,3,4,5,6,7"])
def test_a_number_of_gpus_is_a_list_of_them(tmp_path, parse, devices):
    cfg = parse(configuration(tmp_path, accelerator="gpu", devices=devices, strategy="ddp"))
    assert (cfg.devices, cfg.strategy) == (list(range(8)), "ddp")
    assert cfg.optimizer.lr == pytest.approx(LR * BATCH * 8 / 256)


def test_a_linear_configuration_sets_the_seed(tmp_path):
    """``main_linear.py`` does not, and draws its classifier's weights right after parsing."""
    weights = []
    for seed in (1, 1, 2):
        parse_linear(configuration(tmp_path, devices=1, seed=seed))
        weights.append(torch.nn.Linear(3, 3).weight)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("parse", [parse_pretraining, parse_linear])
@pytest.mark.parametrize("devices", [0, "0", [], ","])
@pytest.mark.parametrize("accelerator", ["cpu", "gpu"])
def test_a_run_without_a_device_is_refused(tmp_path, parse, accelerator, devices):
    with pytest.raises(ValueError, match=r"^devices must name at least one device"):
        parse(configuration(tmp_path, accelerator=accelerator, devices=devices))
