"""Parsed configurations hold a strategy and devices that Lightning 2 accepts."""

import pytest
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
def test_a_number_of_gpus_is_a_list_of_them(tmp_path, parse):
    cfg = parse(configuration(tmp_path, accelerator="gpu", devices=2, strategy="ddp"))
    assert (cfg.devices, cfg.strategy) == ([0, 1], "ddp")
