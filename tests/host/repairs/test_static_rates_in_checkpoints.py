"""Learning rates that are not scheduled, in checkpoints."""

import pytest
import torch
from lightning.pytorch import Trainer
from omegaconf import OmegaConf
from solo.methods import BaseMethod, SimSiam
from torch import nn
from torch.utils.data import DataLoader

LR = 0.05


def tiny(method, **kwargs):
    """A backbone that costs nothing."""
    backbone = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 8))
    backbone.num_features = 8
    return backbone


def train(tmp_path, max_epochs, checkpoint=None):
    cfg = {
        "method": "simsiam",
        "backbone": {"name": "tiny"},
        "method_kwargs": {
            "proj_hidden_dim": 8,
            "proj_output_dim": 8,
            "pred_hidden_dim": 8,
            "temperature": 0.2,
        },
        "data": {
            "dataset": "custom",
            "num_classes": 10,
            "num_large_crops": 2,
            "num_small_crops": 0,
        },
        "optimizer": {
            "name": "sgd",
            "batch_size": 4,
            "lr": LR,
            "classifier_lr": LR,
            "weight_decay": 0,
        },
        "scheduler": {"name": "warmup_cosine", "warmup_epochs": 1},
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
        default_root_dir=tmp_path,
    )
    trainer.fit(SimSiam(OmegaConf.create(cfg)), DataLoader(images, 4), ckpt_path=checkpoint)
    return trainer


@pytest.mark.filterwarnings("ignore")
def test_a_checkpoint_holds_plain_data_and_is_resumed(tmp_path, monkeypatch):
    monkeypatch.setitem(BaseMethod._BACKBONES, "tiny", tiny)
    trainer = train(tmp_path, 2)
    *scheduled, predictor = (group["lr"] for group in trainer.optimizers[0].param_groups)
    assert predictor == pytest.approx(LR)
    assert all(rate < LR / 2 for rate in scheduled)

    trainer.save_checkpoint(tmp_path / "simsiam.ckpt")
    torch.load(tmp_path / "simsiam.ckpt", weights_only=True)
    resumed = train(tmp_path, 3, tmp_path / "simsiam.ckpt")
    assert resumed.global_step == 6
    assert resumed.optimizers[0].param_groups[-1]["lr"] == pytest.approx(LR)
