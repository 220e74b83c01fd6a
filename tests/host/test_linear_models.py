"""Backbones filled from checkpoints, and linear models on top of them."""

import pytest
import torch
from omegaconf import OmegaConf

from solo_margins import host
from solo_margins.data.datamodule import RunData


@pytest.fixture
def checkpoint(config, loaders, trainer, tmp_path):
    """A checkpoint of one step of pretraining."""
    cfg = config("mocov3", "max_epochs=1")
    run = trainer(cfg, limit_train_batches=1, limit_val_batches=0)
    run.fit(host.MoCoV3(cfg), *loaders(cfg))
    run.save_checkpoint(tmp_path / "pretrained.ckpt")
    return tmp_path / "pretrained.ckpt"


@pytest.fixture
def linear_config(raw_config):
    """A parsed linear configuration."""

    def make(checkpoint):
        cfg = raw_config(
            "mocov3",
            f"pretrained_feature_extractor={checkpoint}",
            "scheduler.name=step",
            "scheduler.lr_decay_steps=[1]",
        )
        del cfg["augmentations"]
        cfg.data.augmentations = {"crop_size": 16}
        return host.parse_linear_cfg(cfg)

    return make


def test_a_linear_model_on_a_loaded_backbone(checkpoint, linear_config, trainer):
    cfg = linear_config(checkpoint)
    backbone = host.build_backbone(cfg)
    host.load_backbone(backbone, checkpoint)
    state = torch.load(checkpoint, weights_only=True)["state_dict"]
    assert torch.equal(backbone.convolution.weight, state["backbone.convolution.weight"])

    model = host.LinearModel(backbone, cfg=cfg)
    frozen = {key: value.clone() for key, value in backbone.state_dict().items()}
    before = model.classifier.weight.detach().clone()
    run = trainer(cfg)
    run.fit(model, datamodule=RunData(cfg, pretraining=False))
    assert all(torch.equal(frozen[key], value) for key, value in backbone.state_dict().items())
    assert not torch.equal(before, model.classifier.weight)
    assert run.callback_metrics["val_acc5"].item() == pytest.approx(100)
    assert {"train_loss_epoch", "val_loss", "val_acc1"} <= run.callback_metrics.keys()


def test_fine_tuning_moves_the_backbone(linear_config, trainer):
    cfg = linear_config("x.ckpt")
    cfg.finetune = True
    model = host.LinearModel(host.build_backbone(cfg), cfg=cfg)
    before = model.backbone.convolution.weight.detach().clone()
    data = RunData(cfg, pretraining=False)
    trainer(cfg, limit_train_batches=1, limit_val_batches=0).fit(model, datamodule=data)
    assert not torch.equal(before, model.backbone.convolution.weight)


def test_older_keys_are_renamed_and_a_wrong_file_is_named(linear_config, tmp_path, caplog):
    cfg = linear_config("x.ckpt")
    source, target = host.build_backbone(cfg), host.build_backbone(cfg)
    old = {f"encoder.{key}": value for key, value in source.state_dict().items()}
    torch.save({"state_dict": old}, tmp_path / "old.ckpt")
    host.load_backbone(target, tmp_path / "old.ckpt")
    assert torch.equal(source.convolution.weight, target.convolution.weight)
    assert "encoder.*" in caplog.text

    torch.save({"state_dict": {"fc.weight": torch.ones(1)}}, tmp_path / "alien.ckpt")
    with pytest.raises(ValueError, match=r"alien\.ckpt"):
        host.load_backbone(target, tmp_path / "alien.ckpt")
    other = OmegaConf.merge(cfg, {"backbone": {"name": "resnet18"}})
    with pytest.raises(ValueError, match=r"another backbone"):
        host.load_backbone(host.build_backbone(other), tmp_path / "old.ckpt")
