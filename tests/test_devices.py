"""Settings of devices, and networks that crash in channels-last memory on a CPU."""

import pytest
import torch
from omegaconf import OmegaConf
from solo.methods import METHODS
from solo.methods.base import BaseMethod
from torch import nn

from solo_margins.devices import complete_trainer_settings
from solo_margins.methods.linear import LinearClassifier


class Network(nn.Module):
    """A network with a 1x1 convolution of some channels, which tells what memory images have."""

    num_features = 16

    def __init__(self, method=None, channels=8, stride=2):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3)
        self.shortcut = nn.Conv2d(channels, 16, 1, stride)
        self.seen = set()

    def forward(self, images):
        self.seen.add(layout(images))
        return self.shortcut(self.stem(images)).mean((2, 3))


def layout(tensor):
    return "contiguous" if tensor.is_contiguous() else "channels last"


def configuration(accelerator, **kwargs):
    cfg = {
        "method": "byol_curv",
        "backbone": {"name": "narrow", "kwargs": kwargs},
        "method_kwargs": {"proj_hidden_dim": 8, "proj_output_dim": 8, "pred_hidden_dim": 8},
        "momentum": {"base_tau": 0.9, "final_tau": 1.0, "classifier": False},
        "data": {"dataset": "custom", "num_classes": 2, "num_large_crops": 2, "num_small_crops": 0},
        "optimizer": {
            "name": "sgd",
            "batch_size": 4,
            "lr": 0.01,
            "classifier_lr": 0.01,
            "weight_decay": 0,
        },
        "scheduler": {"name": "none"},
        "max_epochs": 1,
    }
    if accelerator:
        cfg["accelerator"] = accelerator
    return OmegaConf.create(cfg)


def layouts(kind, cfg):
    """Build a model as solo-learn's programs do; return the memory of weights and of images."""
    if kind == "pretraining":
        model = METHODS["byol_curv"](cfg)
    else:
        backbone = Network(**cfg.backbone.kwargs)
        model = LinearClassifier(backbone, loss_func=None, mixup_func=None, cfg=cfg)
    if not cfg.performance.disable_channel_last:
        model = model.to(memory_format=torch.channels_last)
    images = torch.rand(4, 3, 8, 8)
    model(images)
    networks = [model.backbone]
    if kind == "pretraining":
        model.momentum_forward(images)
        model.multicrop_forward(images)
        networks.append(model.momentum_backbone)
    return {layout(network.stem.weight) for network in networks}.union(*(n.seen for n in networks))


@pytest.fixture(autouse=True)
def known(monkeypatch):
    monkeypatch.setitem(BaseMethod._BACKBONES, "narrow", Network)


@pytest.mark.parametrize("kind", ["pretraining", "probing"])
@pytest.mark.parametrize("channels", [3, 8, 15])
def test_narrow_networks_on_a_cpu_keep_contiguous_memory(kind, channels):
    with pytest.warns(UserWarning, match=r"contiguous memory .* layer (backbone\.)?shortcut"):
        assert layouts(kind, configuration("cpu", channels=channels)) == {"contiguous"}


@pytest.mark.parametrize("kind", ["pretraining", "probing"])
@pytest.mark.parametrize(
    ("accelerator", "kwargs"),
    [("cpu", {"channels": 16}), ("cpu", {"stride": 1}), ("gpu", {}), ("cuda", {})],
)
def test_others_are_channels_last(kind, accelerator, kwargs, recwarn):
    assert layouts(kind, configuration(accelerator, **kwargs)) == {"channels last"}
    assert not [w for w in recwarn if "contiguous" in str(w.message)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("accelerator", [None, "auto"])
def test_without_a_choice_it_is_a_cpu_where_there_is_no_gpu(accelerator):
    has_gpu = torch.cuda.is_available() or torch.backends.mps.is_available()
    expected = {"channels last" if has_gpu else "contiguous"}
    assert layouts("pretraining", configuration(accelerator)) == expected


def settings(**given):
    return complete_trainer_settings(OmegaConf.create(given))


@pytest.mark.parametrize(
    ("devices", "processes"), [([0], 1), ([0, 1], 2), ("1", 1), (1, 1), (2, 2), (None, 1)]
)
def test_devices_are_a_list_on_a_cpu_as_well(devices, processes):
    cfg = settings(devices=devices, accelerator="cpu")
    # solo-learn scales learning rates by the length.
    assert cfg.devices == list(range(processes))
    assert cfg.strategy == "auto"


@pytest.mark.parametrize("devices", [8, "8", "0,1,2,3,4,5,6,7"])
def test_a_number_of_gpus_is_a_list_of_them(devices):
    cfg = settings(devices=devices, accelerator="gpu", strategy="ddp")
    assert (cfg.devices, cfg.strategy) == (list(range(8)), "ddp")


def test_devices_that_are_no_number_are_refused():
    with pytest.raises(ValueError, match="devices"):
        settings(devices="many", accelerator="cpu")
