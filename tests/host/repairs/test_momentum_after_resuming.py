"""The schedule of tau goes on where a resumed training left it."""

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from omegaconf import OmegaConf
from solo.methods import BYOL, BaseMethod
from torch import nn
from torch.utils.data import DataLoader


def tiny(method, **kwargs):
    """A backbone that costs nothing."""
    backbone = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 8))
    backbone.num_features = 8
    return backbone


class Watch(Callback):
    def __init__(self, folder):
        self.folder = folder
        self.taus = []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.taus.append(pl_module.momentum_updater.cur_tau)

    def on_train_epoch_end(self, trainer, pl_module):
        trainer.save_checkpoint(self.folder / f"{trainer.current_epoch}.ckpt")


def taus(folder, checkpoint=None):
    cfg = {
        "method": "byol",
        "backbone": {"name": "tiny"},
        "method_kwargs": {"proj_hidden_dim": 8, "proj_output_dim": 8, "pred_hidden_dim": 8},
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
        "max_epochs": 2,
    }
    images = [(i, [torch.randn(3, 16, 16) for _ in range(2)], i % 10) for i in range(8)]
    watch = Watch(folder)
    trainer = Trainer(
        max_epochs=2,
        accelerator="cpu",
        devices=1,
        callbacks=[watch],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(BYOL(OmegaConf.create(cfg)), DataLoader(images, 4), ckpt_path=checkpoint)
    return watch.taus


@pytest.mark.filterwarnings("ignore")
def test_tau_is_that_of_a_training_that_was_not_interrupted(tmp_path, monkeypatch):
    monkeypatch.setitem(BaseMethod._BACKBONES, "tiny", tiny)
    whole = taus(tmp_path)
    assert len(set(whole)) == 4
    assert taus(tmp_path, tmp_path / "0.ckpt") == pytest.approx(whole[2:])
