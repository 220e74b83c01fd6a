"""The loss of the online classifiers where images have no label (target -1)."""

import pytest
import torch
import torch.nn.functional as F
from omegaconf import OmegaConf
from solo.methods import BYOL, BaseMethod
from torch import nn

CLASSIFIERS = {"_base_shared_step": "classifier", "_shared_step_momentum": "momentum_classifier"}
IMAGES = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def tiny(method, **kwargs):
    """A backbone that costs nothing."""
    backbone = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 8))
    backbone.num_features = 8
    return backbone


@pytest.fixture
def method(monkeypatch):
    monkeypatch.setitem(BaseMethod._BACKBONES, "tiny", tiny)
    cfg = {
        "method": "byol",
        "backbone": {"name": "tiny"},
        "method_kwargs": {"proj_hidden_dim": 8, "proj_output_dim": 8, "pred_hidden_dim": 8},
        "momentum": {"classifier": True},
        "data": {
            "dataset": "custom",
            "num_classes": 10,
            "num_large_crops": 2,
            "num_small_crops": 0,
        },
        "optimizer": {
            "name": "sgd",
            "batch_size": 4,
            "lr": 0.1,
            "classifier_lr": 0.1,
            "weight_decay": 0,
        },
        "scheduler": {"name": "none"},
        "max_epochs": 1,
    }
    return BYOL(OmegaConf.create(cfg))


@pytest.mark.parametrize("step", CLASSIFIERS)
def test_a_batch_without_labels_teaches_nothing(method, step):
    out = getattr(method, step)(IMAGES, torch.full((4,), -1))
    assert out["loss"].item() == 0
    method.zero_grad()
    out["loss"].backward()
    assert (getattr(method, CLASSIFIERS[step]).weight.grad == 0).all()


@pytest.mark.parametrize("step", CLASSIFIERS)
@pytest.mark.parametrize("labels", [[3, 1, 4, 1], [3, -1, 4, -1]])
def test_the_loss_is_the_mean_over_labelled_images(method, step, labels):
    targets = torch.tensor(labels)
    out = getattr(method, step)(IMAGES, targets)
    expected = F.cross_entropy(out["logits"][targets >= 0], targets[targets >= 0])
    torch.testing.assert_close(out["loss"], expected)
