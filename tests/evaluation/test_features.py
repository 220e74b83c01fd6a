"""Features are extracted once, and depend on nothing but backbone, images and seed."""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from solo_margins import files
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
    monkeypatch.setattr(files, "free_memory", lambda: 100)
    with pytest.raises(ValueError, match=r"of \(3, 10, 1\) numbers.*lower passes or label_frac"):
        extracted(3)
    monkeypatch.undo()
    assert files.free_memory() > 1e6


def test_broken_weights_are_refused():
    loader = view_loader(Views(IMAGES, lambda image: image * torch.full((1,), torch.nan)))
    with pytest.raises(ValueError, match=r"features are not finite"):
        extract_features(nn.Identity(), loader, "cpu", progress=False)


@pytest.mark.parametrize(
    ("channels", "asked", "expected"),
    [(8, True, False), (16, True, True), (16, False, False)],
)
def test_narrow_networks_are_not_run_in_channels_last_memory(channels, asked, expected, recwarn):
    class Network(nn.Sequential):
        def forward(self, images):
            tensors = (images, self[0].weight)
            seen.update(t.is_contiguous(memory_format=torch.channels_last) for t in tensors)
            return super().forward(images).flatten(1)

    seen = set()
    network = Network(nn.Conv2d(3, channels, 3), nn.Conv2d(channels, 4, 1, stride=2))
    network.to(memory_format=torch.channels_last)
    images = TensorDataset(torch.rand(6, 3, 8, 8), torch.arange(6))
    loader = view_loader(Views(images, lambda image: image))
    extract_features(network, loader, "cpu", asked, progress=False)
    assert seen == {expected}
    said = [w for w in recwarn if "stays in contiguous memory" in str(w.message)]
    assert bool(said) == (channels < 16)


def test_an_absent_device_is_said_in_a_sentence():
    with pytest.raises(ValueError, match=r"device=cuda:77 cannot be used"):
        features.choose_device("cuda:77")
    with pytest.raises(ValueError, match=r"device=gpu cannot be used"):
        features.choose_device("gpu")
    assert features.choose_device("cpu") == torch.device("cpu")
