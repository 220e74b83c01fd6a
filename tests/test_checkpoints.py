"""What a checkpoint was trained with, asked by its path."""

import json

import pytest

from solo_margins.checkpoints import checkpoint_setting


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
