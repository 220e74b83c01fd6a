"""Backbones taken away: plain models of other libraries load them and see the same."""

import json
import os
import re
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from solo_margins import training
from solo_margins.backbones import build_backbone
from solo_margins.export import TARGETS, export, main

VIT = {"img_size": 32, "patch_size": 8}
CASES = {
    # name, arguments, method, data set that solo-learn chooses the stem by, targets that have it
    "resnet18": ({}, "simclr", "custom", ("torchvision", "timm")),
    "solo-learn's stem": ({}, "simclr", "cifar10", ("torchvision", "timm")),
    "cifar_resnet18": ({}, "mocov3_margin", "custom", ("torchvision", "timm")),
    "pooled_resnet18": ({}, "mocov3_margin", "custom", ("torchvision", "timm")),
    "narrow_resnet10": ({"width": 8, "stem_stride": 2}, "mocov3_margin", "custom", ()),
    "vit_tiny": (VIT, "simclr", "custom", ("timm",)),
    "timm/resnet26d": ({}, "simclr_margin", "custom", ("timm",)),
    "timm/mobilenetv3_small_050": ({}, "simclr_margin", "custom", ("timm",)),
}


@pytest.fixture
def stored(tmp_path):
    """A run's folder with the checkpoint of an untrained backbone, and that backbone."""

    def store(name):
        kwargs, method, dataset, _ = CASES[name]
        settings = OmegaConf.create(
            {
                "method": method,
                "backbone": {"name": name if "'" not in name else "resnet18", "kwargs": kwargs},
                "data": {"dataset": dataset, "name": None},
                "augmentations": [{"crop_size": 32}],
                "optimizer": {"name": "sgd", "batch_size": 8, "lr": 0.1},
                "max_epochs": 1,
            }
        )
        torch.manual_seed(1)
        backbone = build_backbone(settings)
        for buffer, value in backbone.named_buffers():
            if buffer.endswith("running_mean"):
                value.normal_()
        folder = tmp_path / "run-1"
        folder.mkdir()
        state = {f"backbone.{key}": value for key, value in backbone.state_dict().items()}
        torch.save({"state_dict": state}, folder / "last.ckpt")
        (folder / "args.json").write_text(json.dumps(OmegaConf.to_container(settings)))
        return folder, backbone.eval()

    return store


def model_of(folder, monkeypatch):
    """Run the program of a model card, as a reader would, and return its model."""
    [code] = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.S)
    monkeypatch.chdir(folder)
    names = {}
    exec(code, names)
    return names["model"].eval()


def refuse(word):
    raise ValueError(f"{word} is not JSON")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_a_plain_model_gives_the_same_features(stored, tmp_path, monkeypatch, name, target):
    run, backbone = stored(name)
    has_it = target == "safetensors" or target in CASES[name][3]
    output = tmp_path / "taken away" / "model"
    if not has_it:
        with pytest.raises(ValueError, match=r"has no model .*--to safetensors writes them"):
            export(run, target, output)
        assert not output.parent.exists() or not os.listdir(output.parent)
        return
    assert export(run, target, output) == output
    assert {path.name for path in output.iterdir()} == {
        TARGETS[target],
        "README.md",
        "settings.json",
    }
    images = torch.randn(3, 3, 32, 32)
    model = model_of(output, monkeypatch)
    with torch.no_grad():
        torch.testing.assert_close(model(images), backbone(images), rtol=0, atol=1e-6)


def test_the_card_of_a_real_run(config, tmp_path, monkeypatch, capsys):
    settings = ["mocov3_margin", "backbone.name=resnet18", "knn_eval.enabled=true"]
    settings += ["method_kwargs.margins={positive_scale: 2, curvature: 0.7}"]
    run = training.pretrain(config(*settings))
    main([str(run.folder), "--to", "torchvision"])
    folder = Path(f"{run.folder.name}-torchvision")
    said = capsys.readouterr().out
    assert f"Model card: {folder / 'README.md'}" in said
    card = (folder / "README.md").read_text()
    accuracy = f"{run.metrics['val_knn_acc1']:.2f}"
    assert all(part in card for part in ("mocov3_margin", "positive_scale 2.0", accuracy))
    # Strict JSON, although the default curvature is infinite.
    settings = json.loads((folder / "settings.json").read_text(), parse_constant=refuse)
    assert settings["method_kwargs"]["margins"]["positive_scale"] == 2
    trained = torch.load(run.checkpoint, weights_only=True)["state_dict"]
    model = model_of(folder.absolute(), monkeypatch)
    assert torch.equal(model.conv1.weight, trained["backbone.conv1.weight"])


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def config(raw_config):
    """A configuration for the runner."""

    def make(*overrides):
        cfg = raw_config(*overrides, "enable_progress_bar=false", "max_epochs=1")
        del cfg["devices"], cfg["accelerator"], cfg["performance"]
        return cfg

    return make


@pytest.mark.parametrize("missing", ["run", "settings"])
def test_what_is_no_run_is_refused(stored, missing):
    run, _ = stored("resnet18")
    if missing == "run":
        run = run / "nowhere"
    else:
        (run / "args.json").unlink()
    with pytest.raises(ValueError, match="nowhere" if missing == "run" else "args.json"):
        export(run, "timm")
    assert os.listdir() == []


def test_nothing_is_written_over(stored, tmp_path):
    run, _ = stored("resnet18")
    (tmp_path / "taken").mkdir()
    with pytest.raises(ValueError, match="--output"):
        export(run, "timm", tmp_path / "taken")
