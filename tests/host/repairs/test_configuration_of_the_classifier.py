"""A linear classifier keeps its configuration, as every other module does."""

import inspect

import pytest
from omegaconf import OmegaConf
from solo.methods import LinearModel
from torch import nn


@pytest.mark.parametrize("by_name", [True, False])
def test_callbacks_can_read_it(by_name):
    backbone = nn.Flatten()
    backbone.num_features = 12
    cfg = OmegaConf.create(
        {
            "data": {"num_classes": 3},
            "optimizer": {"name": "sgd", "batch_size": 4, "lr": 0.1, "weight_decay": 0},
            "scheduler": {"name": "none"},
            "max_epochs": 1,
        }
    )
    model = LinearModel(backbone, cfg=cfg) if by_name else LinearModel(backbone, cfg)
    assert model.cfg is cfg
    assert model.cfg.optimizer.lr == model.lr == 0.1
    # With the defaults that solo-learn adds.
    assert model.cfg.finetune is False
    names = list(inspect.signature(LinearModel.__init__).parameters)
    assert names == ["self", "backbone", "cfg", "loss_func", "mixup_func"]
