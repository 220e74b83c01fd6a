"""Linear probes of real checkpoints."""

import json

import pytest
import torch
from omegaconf import OmegaConf

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
    result = training.linear(linear_config(checkpoint))
    assert result.folder.parent == tmp_path / "runs" / "linear"
    args = json.loads((result.folder / "args.json").read_text())
    assert args["backbone"]["name"] == "tiny_resnet_like"
    assert args["pretrain_method"] == "simclr_margin"
    assert args["data"]["augmentations"]["crop_size"] == 16
    state = torch.load(result.checkpoint, weights_only=True)["state_dict"]
    pretrained = torch.load(checkpoint, weights_only=True)["state_dict"]
    key = "backbone.convolution.weight"
    assert torch.equal(state[key], pretrained[key])
    # Brightness tells the three classes apart.
    assert result.metrics["val_acc1"] > 50
    said = capsys.readouterr().out
    assert f"Linear classifier: {result.metrics['val_acc1']:.2f} % (top 1, " in said
    assert (result.folder / "logs" / "version_0" / "metrics.csv").is_file()


def test_a_runs_folder_means_its_newest_checkpoint(checkpoint, linear_config):
    result = training.linear(linear_config(checkpoint.parent, "max_epochs=1"))
    args = json.loads((result.folder / "args.json").read_text())
    assert args["pretrained_feature_extractor"] == str(checkpoint)


def test_older_keys_are_renamed_with_a_message(checkpoint, linear_config, caplog):
    content = torch.load(checkpoint, weights_only=True)
    content["state_dict"] = {
        key.replace("backbone.", "encoder."): value for key, value in content["state_dict"].items()
    }
    torch.save(content, checkpoint)
    training.linear(linear_config(checkpoint, "max_epochs=1"))
    assert "encoder.*" in caplog.text


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("pretrained_feature_extractor=/nowhere.ckpt", r"/nowhere\.ckpt does not exist"),
        ("pretrained_feature_extractor=null", r"needs a value for pretrained_feature_extractor"),
        ("backbone.name=resnet18", r"holds another backbone"),
        ("data.val_path=null", r"data\.val_path has no value"),
    ],
)
def test_mistakes_are_explained(checkpoint, linear_config, override, message):
    with pytest.raises(ValueError, match=message):
        training.linear(linear_config(checkpoint, override))


def test_without_args_the_backbone_must_be_named(checkpoint, linear_config):
    (checkpoint.parent / "args.json").unlink()
    with pytest.raises(ValueError, match=r"needs a value for backbone\.name"):
        training.linear(linear_config(checkpoint))


def test_mixup_and_label_smoothing(checkpoint, linear_config):
    mixed = linear_config(checkpoint, "mixup=0.2", "label_smoothing=0.1", "max_epochs=1")
    assert "val_acc1" in training.linear(mixed).metrics
    smoothed = linear_config(checkpoint, "label_smoothing=0.1", "max_epochs=1")
    assert "val_acc1" in training.linear(smoothed).metrics


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
