"""The paper's protocol of the linear probe, in the slow form and in the fast one."""

import math

import pytest
import torch
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from solo_margins.data.dataset_paths import OURS
from solo_margins.evaluation.features import Features
from solo_margins.evaluation.probe import layer_accuracy, train_linear_layer
from solo_margins.methods.linear import LinearClassifier


@pytest.mark.parametrize("data", OURS)
def test_the_numbers_are_those_of_the_paper(data):
    with initialize_config_module("solo_margins.configs", version_base=None):
        cfg = compose("linear.yaml", overrides=[f"data={data}"])
    rate, epochs = cfg.optimizer.lr, cfg.max_epochs
    # No checkpoint is named here, from which the rest could be resolved.
    cfg = OmegaConf.to_container(cfg, resolve=False)
    assert cfg["normalize_features"] is False
    on_imagenet = data == "imagenet"
    assert epochs == (90 if on_imagenet else 100)
    optimizer = cfg["optimizer"]
    assert (optimizer["name"], rate, optimizer["weight_decay"]) == (
        "sgd",
        0.1 if on_imagenet else 1.0,
        0.0,
    )
    assert (optimizer["batch_size"], optimizer["kwargs"]["momentum"]) == (256, 0.9)
    scheduler = cfg["scheduler"]
    assert (scheduler["name"], scheduler["warmup_epochs"]) == ("warmup_cosine", 0)
    assert scheduler["min_lr"] == 0.0
    assert cfg["finetune"] is False
    assert cfg["mixup"] == cfg["cutmix"] == cfg["label_smoothing"] == 0.0
    assert not cfg["auto_augment"]


def linear_config(**changes):
    """A parsed linear configuration, as far as a layer on features needs one."""
    cfg = {
        "data": {"num_classes": 7},
        "max_epochs": 1,
        "optimizer": {"name": "sgd", "batch_size": 8, "lr": 1.0, "weight_decay": 0.0},
        "scheduler": {"name": "warmup_cosine", "warmup_epochs": 0},
        "seed": 3,
        "devices": 1,
        "strategy": "auto",
        "performance": {"disable_channel_last": True},
    }
    cfg["optimizer"]["kwargs"] = {"momentum": 0.9}
    cfg["scheduler"] |= {"warmup_start_lr": 0.0, "min_lr": 0.0}
    cfg = OmegaConf.create(cfg)
    for key, value in changes.items():
        OmegaConf.update(cfg, key.replace("__", "."), value)
    return cfg


def noisy_features(images, classes=7, width=5, passes=1):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(images) % classes
    centres = torch.randn(classes, width, generator=generator)
    noise = torch.randn(passes, images, width, generator=generator)
    return Features(centres[labels] + 0.3 * noise, labels)


class InOrderOf:
    """Batches in the order in which the fast probe draws them."""

    def __init__(self, images, batch_size, seed):
        self.images, self.batch_size = images, batch_size
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self):
        return self.images // self.batch_size

    def __iter__(self):
        order = torch.randperm(self.images, generator=self.generator)
        yield from (rows.tolist() for rows in order.split(self.batch_size)[: len(self)])


@pytest.mark.parametrize(("warmup", "normalizes"), [(0, False), (1.5, False), (0, True)])
def test_the_fast_probe_takes_the_steps_of_the_hosts(warmup, normalizes, trainer):
    features = noisy_features(50)
    cfg = linear_config(
        max_epochs=4,
        optimizer__batch_size=16,
        optimizer__lr=0.7,
        optimizer__weight_decay=1e-3,
        scheduler__warmup_epochs=warmup,
        normalize_features=normalizes,
    )
    fast = train_linear_layer(features, cfg, "cpu", progress=False)

    backbone = nn.Identity()
    backbone.num_features = 5
    slow = LinearClassifier(backbone, cfg=cfg)
    torch.manual_seed(3)
    linear = nn.Linear(5, 7)
    slow.classifier = nn.Sequential(nn.BatchNorm1d(5), linear) if normalizes else linear
    loader = DataLoader(
        TensorDataset(features.values[0], features.labels), batch_sampler=InOrderOf(50, 16, 3)
    )
    trainer(cfg, use_distributed_sampler=False).fit(slow, loader)
    expected = {key: value.cpu() for key, value in slow.classifier.state_dict().items()}
    torch.testing.assert_close(dict(fast.state_dict()), expected, atol=1e-5, rtol=1e-4)
    assert not fast.training
    of_setting = LinearClassifier(backbone, cfg=cfg).classifier
    assert of_setting.state_dict().keys() == expected.keys()


def test_epochs_take_the_passes_in_turn():
    both = noisy_features(32, passes=2)
    hidden = Features(both.values.clone(), both.labels)
    hidden.values[1] = math.nan
    of_both = train_linear_layer(both, linear_config(), "cpu", progress=False)
    of_first = train_linear_layer(hidden, linear_config(), "cpu", progress=False)
    assert torch.equal(of_both.weight, of_first.weight)
    second = train_linear_layer(hidden, linear_config(max_epochs=2), "cpu", progress=False)
    assert second.weight.isnan().any(), "the second epoch uses the second pass"


def test_accuracies_are_counted_in_percent():
    layer = nn.Linear(6, 6, bias=False)
    layer.weight.data = torch.eye(6)
    scores = torch.tensor([[6.0, 5, 4, 3, 2, 1]]).repeat(3, 1)
    found = layer_accuracy(layer, Features(scores[None], torch.tensor([0, 4, 5])))
    assert found == pytest.approx((100 / 3, 200 / 3))
    few = nn.Linear(6, 3)
    assert layer_accuracy(few, Features(scores[None], torch.tensor([0, 1, 2])))[1] == 100


def test_fewer_images_than_a_batch_are_refused():
    with pytest.raises(ValueError, match=r"batch_size=256 exceeds the 50 training images"):
        train_linear_layer(noisy_features(50), linear_config(optimizer__batch_size=256), "cpu")
