"""Features are extracted once, and depend on nothing but backbone, images and seed."""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from solo_margins.evaluation import features
from solo_margins.evaluation.features import Views, extract_features, view_loader

IMAGES = TensorDataset(torch.arange(10.0), torch.arange(10) % 3)


def noisy(image):
    return image + torch.rand(1)


def extracted(number, batch_size=4, num_workers=0, seed=0):
    views = Views(IMAGES, noisy, number, seed)
    loader = view_loader(views, batch_size, num_workers)
    return extract_features(nn.Identity(), loader, "cpu", progress=False)


def test_views_have_random_numbers_of_their_own():
    found = extracted(3)
    assert found.values.shape == (3, 10, 1)
    assert torch.equal(found.values.floor()[:, :, 0], torch.arange(10.0).expand(3, 10))
    assert found.labels.tolist() == [label % 3 for label in range(10)]
    assert len(found.values.frac().unique()) == 30
    for other in (extracted(3, batch_size=1), extracted(3, 7, num_workers=2)):
        assert torch.equal(found.values, other.values)
    assert torch.equal(found.values[:2], extracted(2).values)
    assert not torch.equal(found.values, extracted(3, seed=1).values)


def test_callers_keep_their_random_numbers_and_the_networks_mode():
    network = nn.Dropout(0.9)
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    loader = view_loader(Views(IMAGES, noisy))
    first = extract_features(network, loader, "cpu", progress=False)
    assert torch.equal(torch.rand(1), expected)
    assert network.training
    assert torch.equal(first.values, extracted(1).values), "nothing is dropped"


def test_too_little_memory_is_said_in_a_sentence(monkeypatch):
    monkeypatch.setattr(features, "free_memory", lambda: 100)
    with pytest.raises(ValueError, match=r"3 x 10 images x 1 numbers.*lower passes or label_frac"):
        extracted(3)
    monkeypatch.undo()
    assert features.free_memory() > 1e6


def test_broken_weights_are_refused():
    loader = view_loader(Views(IMAGES, lambda image: image * torch.full((1,), torch.nan)))
    with pytest.raises(ValueError, match=r"features are not finite"):
        extract_features(nn.Identity(), loader, "cpu", progress=False)


def test_an_absent_device_is_said_in_a_sentence():
    with pytest.raises(ValueError, match=r"device=cuda:77 cannot be used"):
        features.choose_device("cuda:77")
    with pytest.raises(ValueError, match=r"device=gpu cannot be used"):
        features.choose_device("gpu")
    assert features.choose_device("cpu") == torch.device("cpu")
