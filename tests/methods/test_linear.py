"""Backbones filled from checkpoints, and our linear classifier on top of them."""

import pytest
import torch
from omegaconf import OmegaConf
from solo.args.linear import parse_cfg
from solo.methods import METHODS

from solo_margins.backbones import build_backbone, load_backbone
from solo_margins.data.datamodule import RunData
from solo_margins.methods.linear import LinearClassifier


@pytest.fixture
def checkpoint(config, loaders, trainer, tmp_path):
    """A checkpoint of one step of pretraining."""
    cfg = config("mocov3_margin", "max_epochs=1")
    run = trainer(cfg, limit_train_batches=1, limit_val_batches=0)
    run.fit(METHODS["mocov3_margin"](cfg), *loaders(cfg))
    run.save_checkpoint(tmp_path / "pretrained.ckpt")
    return tmp_path / "pretrained.ckpt"


@pytest.fixture
def linear_config(raw_config):
    """A parsed linear configuration."""

    def make(checkpoint, *overrides):
        cfg = raw_config("mocov3_margin", f"pretrained_feature_extractor={checkpoint}", *overrides)
        del cfg["augmentations"]
        cfg.data.augmentations = {"crop_size": 16}
        return parse_cfg(cfg)

    return make


STEPS = ["scheduler.name=step", "scheduler.lr_decay_steps=[1]"]


def test_a_classifier_of_few_classes_on_a_loaded_backbone(checkpoint, linear_config, trainer):
    cfg = linear_config(checkpoint, *STEPS)
    backbone = build_backbone(cfg)
    load_backbone(backbone, checkpoint)
    state = torch.load(checkpoint, weights_only=True)["state_dict"]
    assert torch.equal(backbone.convolution.weight, state["backbone.convolution.weight"])

    model = LinearClassifier(backbone, cfg)
    assert model.cfg is cfg
    frozen = {key: value.clone() for key, value in backbone.state_dict().items()}
    before = model.classifier.weight.detach().clone()
    run = trainer(cfg)
    run.fit(model, datamodule=RunData(cfg, pretraining=False))
    assert all(torch.equal(frozen[key], value) for key, value in backbone.state_dict().items())
    assert not torch.equal(before, model.classifier.weight)
    assert run.callback_metrics["val_acc5"].item() == pytest.approx(100)
    assert {"train_loss_epoch", "val_loss", "val_acc1"} <= run.callback_metrics.keys()
    assert run.optimizers[0].param_groups[0]["lr"] == pytest.approx(cfg.optimizer.lr / 10)


@pytest.mark.parametrize("warmup", [0, 1, 2])
def test_the_rates_are_those_of_the_closed_form(linear_config, trainer, warmup):
    """Also where the warm-up is as long as the run, which divides by zero in solo-learn's own."""
    cfg = linear_config("x.ckpt", f"scheduler.warmup_epochs={warmup}")
    model = LinearClassifier(build_backbone(cfg), cfg)
    rates = []
    model.on_train_batch_start = lambda *_: rates.append(model.optimizers().param_groups[0]["lr"])
    run = trainer(cfg, limit_train_batches=2, limit_val_batches=0)
    run.fit(model, datamodule=RunData(cfg, pretraining=False))
    start, base = cfg.scheduler.warmup_start_lr, cfg.optimizer.lr
    expected = {
        0: [base, base * 0.8535534, base * 0.5, base * 0.1464466],
        1: [start, base, base, base * 0.5],
        2: [start + (base - start) * step / 3 for step in range(4)],
    }
    assert rates == pytest.approx(expected[warmup])


def test_fine_tuning_moves_the_backbone(linear_config, trainer):
    cfg = linear_config("x.ckpt", *STEPS)
    cfg.finetune = True
    model = LinearClassifier(build_backbone(cfg), cfg)
    before = model.backbone.convolution.weight.detach().clone()
    data = RunData(cfg, pretraining=False)
    trainer(cfg, limit_train_batches=1, limit_val_batches=0).fit(model, datamodule=data)
    assert not torch.equal(before, model.backbone.convolution.weight)


def test_older_keys_are_renamed_and_a_wrong_file_is_named(linear_config, tmp_path, caplog):
    cfg = linear_config("x.ckpt")
    source, target = build_backbone(cfg), build_backbone(cfg)
    old = {f"encoder.{key}": value for key, value in source.state_dict().items()}
    torch.save({"state_dict": old}, tmp_path / "old.ckpt")
    load_backbone(target, tmp_path / "old.ckpt")
    assert torch.equal(source.convolution.weight, target.convolution.weight)
    assert "encoder.*" in caplog.text

    torch.save({"state_dict": {"fc.weight": torch.ones(1)}}, tmp_path / "alien.ckpt")
    with pytest.raises(ValueError, match=r"alien\.ckpt"):
        load_backbone(target, tmp_path / "alien.ckpt")
    other = OmegaConf.merge(cfg, {"backbone": {"name": "resnet18"}})
    with pytest.raises(ValueError, match=r"another backbone"):
        load_backbone(build_backbone(other), tmp_path / "old.ckpt")
