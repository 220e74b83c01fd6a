"""Linear probes of real checkpoints."""

import json

import pytest
import torch
from omegaconf import OmegaConf
from stopped_runs import loaded

from solo_margins import training
from solo_margins.backbones import build_backbone
from solo_margins.training.linear import pretrained_backbone


@pytest.fixture
def checkpoint(config):
    """A checkpoint of a short pretraining."""
    return training.pretrain(config("method=simclr_margin", "max_epochs=1")).checkpoint


def test_a_probe_takes_backbone_method_and_size_from_the_checkpoint(
    checkpoint, linear_config, tmp_path, capsys
):
    result = training.linear(linear_config(checkpoint.parent))
    assert result.folder.parent == tmp_path / "runs" / "linear"
    args = json.loads((result.folder / "args.json").read_text())
    # A run's folder means its newest checkpoint.
    assert args["pretrained_feature_extractor"] == str(checkpoint)
    assert args["backbone"]["name"] == "tiny_resnet_like"
    assert args["pretrain_method"] == "simclr_margin"
    assert args["data"]["augmentations"]["crop_size"] == 16
    key = "backbone.convolution.weight"
    weights = [loaded(path)["state_dict"][key] for path in (result.checkpoint, checkpoint)]
    assert torch.equal(*weights)
    # Brightness tells the three classes apart.
    assert result.metrics["val_acc1"] > 50
    assert f"{result.metrics['val_acc1']:.2f} %" in capsys.readouterr().out
    assert (result.folder / "logs" / "version_0" / "metrics.csv").is_file()


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("pretrained_feature_extractor=/nowhere.ckpt", r"/nowhere\.ckpt"),
        ("pretrained_feature_extractor=null", r"pretrained_feature_extractor"),
        ("backbone.name=resnet18", r"holds another backbone"),
        ("data.val_path=null", r"data\.val_path"),
        (None, r"backbone\.name"),
    ],
)
def test_mistakes_are_explained(checkpoint, linear_config, override, named):
    if override is None:
        # Nothing says then which backbone the checkpoint holds.
        (checkpoint.parent / "args.json").unlink()
    with pytest.raises(ValueError, match=named):
        training.linear(linear_config(checkpoint, *filter(None, [override])))


@pytest.mark.parametrize("mixup", [0, 0.2])
def test_mixup_and_label_smoothing(checkpoint, linear_config, mixup):
    plain, smooth = (
        training.linear(
            linear_config(checkpoint, f"mixup={mixup}", f"label_smoothing={much}", "max_epochs=1")
        )
        for much in (0, 0.3)
    )
    assert smooth.metrics["train_loss_epoch"] != plain.metrics["train_loss_epoch"]


def test_the_stem_is_that_of_the_pretraining_data(tmp_path):
    described = {"backbone": {"name": "resnet18"}, "data": {"dataset": "cifar10"}, "method": "byol"}
    args = OmegaConf.create(described)
    stem = build_backbone(args).conv1
    path = tmp_path / "x.ckpt"
    state = build_backbone(args).state_dict()
    torch.save({"state_dict": {f"backbone.{k}": v for k, v in state.items()}}, path)
    (tmp_path / "args.json").write_text(json.dumps(described))
    cfg = OmegaConf.merge(args, {"data": {"dataset": "custom"}})
    cfg.pretrained_feature_extractor = str(path)
    backbone = pretrained_backbone(cfg)
    assert backbone.conv1.kernel_size == stem.kernel_size == (3, 3)
    assert cfg.data.dataset == "custom"
