"""What a checkpoint was trained with, asked by its path."""

import json
import math

import pytest
from omegaconf import OmegaConf

from solo_margins.checkpoints import (
    checkpoint_setting,
    newest_first,
    read_settings,
    write_settings,
)


def test_a_probes_checkpoint_points_to_that_of_the_pretraining(tmp_path):
    settings = {"pretrained_feature_extractor": "runs/a.ckpt", "backbone": {"name": "resnet18"}}
    (tmp_path / "args.json").write_text(json.dumps(settings))
    checkpoint = tmp_path / "probe.ckpt"
    assert checkpoint_setting(str(checkpoint), "backbone.name") == "resnet18"
    with pytest.raises(ValueError, match=r"of a linear probe.*name the .*runs/a\.ckpt\."):
        checkpoint_setting(str(checkpoint), "augmentations.0.crop_size")


def test_a_setting_that_no_run_wrote_is_named(tmp_path):
    (tmp_path / "args.json").write_text("{}")
    with pytest.raises(ValueError, match=r"holds no setting image\.size"):
        checkpoint_setting(str(tmp_path / "a.ckpt"), "image.size")
    assert checkpoint_setting(str(tmp_path / "a.ckpt"), "image.size", 32) == 32


def test_a_checkpoint_that_vanishes_is_none(tmp_path):
    """A run that trains renames its own between the listing of a folder and a look at them."""
    (tmp_path / "run-ep1.ckpt").touch()
    (tmp_path / "run-ep2.ckpt").symlink_to(tmp_path / "renamed")
    assert newest_first(tmp_path) == [tmp_path / "run-ep1.ckpt"]


def refuse(word):
    raise ValueError(f"{word} is not JSON")


def test_settings_are_strict_json_and_come_back_as_they_were(tmp_path):
    settings = {
        "method_kwargs": {"margins": {"curvature": math.inf, "angular": 0.5}},
        "low": [-math.inf, {"name": "inf"}],
        "none": None,
    }
    write_settings(tmp_path / "args.json", settings)
    text = (tmp_path / "args.json").read_text()
    json.loads(text, parse_constant=refuse)
    assert OmegaConf.to_container(read_settings(tmp_path)) == settings
    write_settings(tmp_path / "args.json", {"value": math.nan})
    assert math.isnan(read_settings(tmp_path)["value"])
    # As earlier versions wrote it.
    (tmp_path / "args.json").write_text('{"curvature": Infinity}')
    assert read_settings(tmp_path)["curvature"] == math.inf
