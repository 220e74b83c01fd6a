"""The linear classifier keeps the configuration that it was built with."""

from omegaconf import OmegaConf
from solo.methods import LinearModel
from torch import nn


class Network(nn.Module):
    """As little of a backbone as the classifier asks for."""

    num_features = 4


def test_a_callback_can_read_the_configuration():
    cfg = OmegaConf.create(
        {
            "data": {"num_classes": 2},
            "optimizer": {"name": "sgd", "batch_size": 4, "lr": 0.3, "weight_decay": 0},
            "scheduler": {"name": "none"},
            "max_epochs": 7,
        }
    )
    model = LinearModel(Network(), cfg, mixup_func=None)
    assert model.cfg is cfg
    assert model.cfg.max_epochs == 7
    # with the defaults that solo-learn adds
    assert model.cfg.finetune is False
