"""DeepCluster v2 is resumed with the memory of features that its clusters come from."""

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from omegaconf import OmegaConf
from solo.methods import BaseMethod, DeepClusterV2
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
        self.memories = []

    def on_train_epoch_start(self, trainer, pl_module):
        memory = (pl_module.local_memory_index, pl_module.local_memory_embeddings)
        self.memories.append([part.clone() for part in memory])

    def on_train_epoch_end(self, trainer, pl_module):
        trainer.save_checkpoint(self.folder / f"{trainer.current_epoch}.ckpt")


def train(folder, number=8, checkpoint=None):
    cfg = {
        "method": "deepclusterv2",
        "backbone": {"name": "tiny"},
        "method_kwargs": {"proj_hidden_dim": 8, "proj_output_dim": 8, "num_prototypes": [3]},
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
    images = [(i, [torch.randn(3, 16, 16) for _ in range(2)], i % 10) for i in range(number)]
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
    trainer.fit(DeepClusterV2(OmegaConf.create(cfg)), DataLoader(images, 4), ckpt_path=checkpoint)
    return watch.memories


@pytest.mark.filterwarnings("ignore")
def test_the_memory_is_that_of_the_epoch_before(tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(BaseMethod._BACKBONES, "tiny", tiny)
    _, whole = train(tmp_path)
    [resumed] = train(tmp_path, checkpoint=tmp_path / "0.ckpt")
    assert sorted(resumed[0].tolist()) == list(range(8))
    for part, expected in zip(resumed, whole, strict=True):
        assert torch.equal(part, expected)

    # Of other images there is no memory.
    [other] = train(tmp_path, number=12, checkpoint=tmp_path / "0.ckpt")
    assert len(other[0]) == 12
    assert "is not restored" in caplog.text
