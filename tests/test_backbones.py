"""Stems by name: what they do to an image depends on nothing but the name of the backbone."""

import pytest
import torch
from torch import nn

from solo_margins.backbones import BACKBONES


def size_before_the_average(network, size):
    seen = []
    last = network.stages if hasattr(network, "stages") else network.layer4
    last.register_forward_hook(lambda _, inputs, output: seen.append(output.shape[-1]))
    with torch.no_grad():
        features = network.eval()(torch.zeros(1, 3, size, size))
    return features.shape, seen[0]


@pytest.mark.parametrize(
    ("name", "size", "features", "left"),
    [
        ("cifar_resnet18", 32, 512, 4),
        ("cifar_resnet50", 32, 2048, 4),
        ("pooled_resnet18", 64, 512, 4),
        ("pooled_resnet50", 64, 2048, 4),
        ("narrow_resnet18", 32, 128, 4),
        ("narrow_resnet10", 32, 128, 4),
    ],
)
def test_what_is_left_of_an_image(name, size, features, left):
    network = BACKBONES[name]("mocov3_margin")
    assert network.num_features == features
    assert size_before_the_average(network, size) == ((1, features), left)


def test_a_stem_that_halves_the_image():
    network = BACKBONES["narrow_resnet10"]("mocov3_margin", stem_stride=2)
    assert size_before_the_average(network, 32) == ((1, 128), 2)


@pytest.mark.parametrize("name", ["cifar_resnet18", "pooled_resnet18"])
def test_stems_keep_the_size_of_the_image(name):
    network = BACKBONES[name]()
    assert network.conv1(torch.zeros(1, 3, 32, 32)).shape[-1] == 32
    assert isinstance(network.maxpool, nn.Identity) == (name == "cifar_resnet18")
    assert isinstance(network.fc, nn.Identity)


def test_settings_reach_the_backbone():
    plain, zeroed = (BACKBONES["cifar_resnet18"](zero_init_residual=z) for z in (False, True))
    assert plain.layer1[0].bn2.weight.abs().sum() > 0 == zeroed.layer1[0].bn2.weight.abs().sum()


@pytest.mark.parametrize("width", [1, 3, 4])
def test_networks_may_be_as_narrow_as_one_channel(width):
    network = BACKBONES["narrow_resnet10"]("mocov3_margin", width=width)
    features = network(torch.rand(2, 3, 64, 64))
    assert features.shape == (2, network.num_features) == (2, 8 * width)
    features.sum().backward()
    assert all(p.grad.isfinite().all() for p in network.parameters())


@pytest.mark.parametrize("width", [0, -8, 2.5, "8"])
def test_a_width_is_a_number_of_channels(width):
    wanted = rf"backbone\.kwargs\.width must be a whole number above 0, got {width!r}"
    with pytest.raises(ValueError, match=wanted):
        BACKBONES["narrow_resnet10"]("mocov3_margin", width=width)
