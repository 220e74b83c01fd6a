"""Size and normalisation of the images that a configuration trains and validates with."""

import inspect

import pytest
import torch
from omegaconf import OmegaConf
from PIL import Image
from solo.data.pretrain_dataloader import build_transform_pipeline

from solo_margins.data.image_spec import (
    SOLO_LEARNS_OWN,
    all_views,
    classifier_spec,
    image_spec,
)
from solo_margins.data.image_statistics import STATISTICS
from solo_margins.versions import form

IMAGENET_STD = (0.229, 0.224, 0.225)


@pytest.mark.parametrize(("size", "shorter"), [(16, 16), (112, 128), (224, 256)])
def test_validation_follows_size_and_statistics_of_the_views(config, view, size, shorter):
    cfg = config("mocov3")
    cfg.augmentations = [view(size, mean=[0.1, 0.2, 0.3], std=[0.4, 0.5, 0.6])]
    crops, centre = classifier_spec(cfg).transforms()
    assert centre.transforms[0].size == shorter
    assert centre.transforms[1].size == (size, size)
    for transform in (crops, centre):
        assert tuple(transform.transforms[-1].mean) == (0.1, 0.2, 0.3)
        assert tuple(transform.transforms[-1].std) == (0.4, 0.5, 0.6)


def test_a_classifier_is_trained_on_the_configured_crops(config):
    cfg = config("mocov3")
    cfg.augmentations[0].crop_min_scale, cfg.augmentations[0].flip_prob = 0.4, 0.0
    crop, flip = classifier_spec(cfg).transforms()[0].transforms[:2]
    assert crop.scale == (0.4, 1.0)
    assert flip.p == 0.0


def linear(dataset, name=None, **augmentations):
    data = {"dataset": dataset, "name": name, "augmentations": augmentations}
    return OmegaConf.create({"data": data})


def test_other_peoples_configurations_are_shown_as_solo_learn_shows_them():
    for dataset, own in SOLO_LEARNS_OWN.items():
        assert classifier_spec(linear(dataset, crop_size=own.size)) == own or dataset == "custom"
        # solo-learn ignores the statistics of views of data that it knows, but not our names.
        views = {"crop_size": own.size, "mean": [0.5] * 3, "std": [0.5] * 3}
        named = classifier_spec(linear(dataset, "folder", **views))
        assert named.mean == (0.5, 0.5, 0.5)
    smaller = classifier_spec(linear("stl10", crop_size=64))
    assert (smaller.size, smaller.mean) == (64, STATISTICS["stl10"][0])
    assert image_spec(linear("cifar10")) is None
    assert classifier_spec(linear("cifar10")).size == 32


@pytest.mark.parametrize("dataset", ["cifar10", "cifar100", "stl10", "imagenet", "custom"])
def test_solo_learns_own_transforms_are_reproduced(dataset):
    if form() == "main":
        from solo.data import classification_dataloader as solo_learn
    else:
        from solo.utils import classification_dataloader as solo_learn
    spec = SOLO_LEARNS_OWN[dataset]
    noise = torch.randint(0, 256, (spec.size, spec.size, 3), dtype=torch.uint8)
    image = Image.fromarray(noise.numpy())
    theirs = inspect.unwrap(solo_learn.prepare_transforms)(dataset)
    ours = spec.transforms()
    if form() == "pypi" and spec.size == 224:
        # The release has a typing error in this deviation.
        for transform in theirs:
            transform.transforms[-1].std = IMAGENET_STD
    for their, our in zip(theirs, ours, strict=True):
        torch.manual_seed(3)
        expected = their(image)
        torch.manual_seed(3)
        assert torch.equal(our(image), expected)


def test_auto_augment_follows_size_and_statistics(config):
    spec = classifier_spec(config("mocov3"))
    image = Image.new("RGB", (40, 36), (120, 120, 120))
    assert spec.auto_augment()(image).shape == (3, 16, 16)


def test_imagenet_is_normalised_with_its_true_deviation(view):
    transform = build_transform_pipeline("imagenet", OmegaConf.create(view()))
    assert tuple(transform.transforms[-1].std) == pytest.approx(IMAGENET_STD)
    assert SOLO_LEARNS_OWN["imagenet"].std == IMAGENET_STD


def test_views_are_normalised_as_configured(named_config, stored):
    cfg = named_config("cifar10", stored("cifar10", "files"))
    cfg.augmentations[0].mean = [0.5, 0.5, 0.5]
    views = all_views(cfg, build_transform_pipeline)
    for view in views.transforms:
        [normalise] = [t for t in view.transform.transforms if type(t).__name__ == "Normalize"]
        assert list(normalise.mean) == [0.5, 0.5, 0.5]
