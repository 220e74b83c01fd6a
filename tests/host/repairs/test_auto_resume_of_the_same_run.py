"""A run is resumed from its own newest checkpoint, not from those of others."""

import json
import os
import time

import pytest
import torch
from omegaconf import OmegaConf
from solo.utils.auto_resumer import AutoResumer

SETTINGS = {
    "name": "run",
    "method": "mocov3",
    "method_kwargs": {"temperature": 0.2, "margins": {"positive_scale": 1.0}},
    "momentum": {"base_tau": 0.99},
    "seed": 5,
    "data": {"dataset": "custom", "train_path": "images", "fraction": -1, "num_workers": 4},
    "wandb": {"enabled": False, "project": "solo-learn"},
    "augmentations": [{"crop_size": 32}],
    "optimizer": {"name": "sgd", "lr": 0.5, "kwargs": {"momentum": 0.9}},
    "scheduler": {"name": "warmup_cosine", "warmup_epochs": 10},
    "max_epochs": 2,
}


def store(folder, *epochs, seconds_ago=10):
    """Write what a run with these settings leaves behind."""
    folder.mkdir()
    args = json.dumps({**SETTINGS, "wandb_run_id": "abc"})
    (folder / "args.json").write_text(args)
    now = time.time() - seconds_ago
    for place, epoch in enumerate(epochs):
        checkpoint = folder / f"run-ep{epoch}.ckpt"
        torch.save({"epoch": epoch}, checkpoint)
        os.utime(checkpoint, (now + place, now + place))
    return checkpoint


def found(folder, **changes):
    cfg = OmegaConf.create(SETTINGS)
    for key, value in changes.items():
        OmegaConf.update(cfg, key.replace("__", "."), value)
    return AutoResumer(folder, max_hours=1).find_checkpoint(cfg)


def test_the_newest_checkpoint_of_the_same_run_is_found(tmp_path):
    # In an order that no listing of a folder has.
    newest = store(tmp_path / "run", 3, 9, 0, 7, 1, 8, 2, 6, 4)
    assert found(tmp_path) == (newest, "abc")


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 6},
        {"name": "another name"},
        {"method_kwargs__temperature": 0.1},
        {"method_kwargs__margins__positive_scale": 20.0},
        {"momentum__base_tau": 0.95},
        {"data__train_path": "others"},
        {"data__fraction": 0.1},
        {"augmentations": [{"crop_size": 64}]},
        {"optimizer__kwargs__momentum": 0.5},
        {"scheduler__warmup_epochs": 0},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_another_run_is_not_taken_for_this_one(tmp_path, changes):
    store(tmp_path / "run", 0)
    assert found(tmp_path, **changes) == (None, None)


@pytest.mark.parametrize(
    "changes",
    [
        {"data__num_workers": 0},
        {"wandb__enabled": True},
        {"method_kwargs__margins__positive_scale": 1},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_run_that_differs_in_logs_or_speed_alone_is_the_same(tmp_path, changes):
    checkpoint = store(tmp_path / "run", 0)
    assert found(tmp_path, **changes)[0] == checkpoint


def test_a_broken_configuration_of_another_run_is_skipped(tmp_path, caplog):
    good = store(tmp_path / "good", 0)
    store(tmp_path / "broken", 0, seconds_ago=5)
    (tmp_path / "broken" / "args.json").write_text("{")
    assert found(tmp_path)[0] == good
    [warning] = caplog.messages
    assert f"{tmp_path / 'broken'} " in warning
    assert "args.json" in warning


def test_broken_checkpoints_are_skipped(tmp_path):
    newest = store(tmp_path / "run", *range(6))
    for epoch in (5, 4, 3, 1, 0):
        broken = newest.with_name(f"run-ep{epoch}.ckpt")
        when = broken.stat().st_mtime
        broken.write_bytes(broken.read_bytes()[:100])
        os.utime(broken, (when, when))
    assert found(tmp_path)[0] == newest.with_name("run-ep2.ckpt")
