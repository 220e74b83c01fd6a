"""All4One is resumed from a checkpoint of its own."""

import pytest
import torch
from lightning.pytorch import Trainer
from omegaconf import OmegaConf
from solo.methods import All4One, BaseMethod
from torch import nn
from torch.utils.data import DataLoader


def tiny(method, **kwargs):
    """A backbone that costs nothing."""
    backbone = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 8))
    backbone.num_features = 8
    return backbone


def train(folder, max_epochs, checkpoint=None):
    cfg = {
        "method": "all4one",
        "backbone": {"name": "tiny"},
        "method_kwargs": {
            "proj_hidden_dim": 8,
            "proj_output_dim": 8,
            "pred_hidden_dim": 8,
            "temperature": 0.2,
            "queue_size": 16,
        },
        "momentum": {"base_tau": 0.9, "final_tau": 1.0},
        "data": {
            "dataset": "custom",
            "num_classes": 10,
            "num_large_crops": 2,
            "num_small_crops": 0,
        },
        "optimizer": {
            "name": "sgd",
            "batch_size": 4,
            "lr": 0.01,
            "classifier_lr": 0.01,
            "weight_decay": 0,
        },
        "scheduler": {"name": "none"},
        "max_epochs": max_epochs,
    }
    images = [(i, [torch.randn(3, 16, 16) for _ in range(2)], i % 10) for i in range(8)]
    trainer = Trainer(
        max_epochs=max_epochs,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(All4One(OmegaConf.create(cfg)), DataLoader(images, 4), ckpt_path=checkpoint)
    return trainer


@pytest.mark.filterwarnings("ignore")
def test_training_goes_on_from_a_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setitem(BaseMethod._BACKBONES, "tiny", tiny)
    train(tmp_path, 1).save_checkpoint(tmp_path / "all4one.ckpt")
    assert train(tmp_path, 2, tmp_path / "all4one.ckpt").global_step == 4
