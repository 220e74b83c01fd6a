"""DALI's batches are those of the run's seed, epoch and rank, and can be resumed."""

import damaged_images
import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from PIL import Image

pytest.importorskip("nvidia.dali")

from solo.data.dali_dataloader import build_transform_pipeline_dali

from solo_margins.data.class_folders import UnreadableImage
from solo_margins.data.dali import (
    DALIBatches,
    classifier_crops,
    explanation,
    is_from_dali,
    views,
)
from solo_margins.data.folders import labelled_files
from solo_margins.data.image_spec import ImageSpec
from solo_margins.versions import form

IMAGES, BATCH = 26, 6
PER_EPOCH = IMAGES // BATCH
KINDS = ("pretraining", "classification")
LABELS = torch.arange(IMAGES) * 2
GREY = ImageSpec(16, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), crop_min_scale=0.3)


@pytest.fixture
def same_images(tmp_path):
    """The same image in many files: two views differ by their augmentations alone."""
    pixels = np.random.default_rng(0).integers(0, 256, (36, 40, 3)).astype(np.uint8)
    samples = []
    for number in range(IMAGES):
        path = tmp_path / f"{number:02}.png"
        Image.fromarray(pixels).save(path)
        samples.append((str(path), int(LABELS[number])))
    return samples


@pytest.fixture
def loader(same_images, view, at):
    """DALI's batches on one rank of a run."""

    def make(kind, seed=1, rank=0, ranks=1, completed=0, threads=0, machines=1):
        cfg = OmegaConf.create({"augmentations": [view()], "dali": {"device": "cpu"}})
        cfg.data = {"dataset": "custom"}
        is_pretraining = kind == "pretraining"
        augment = (lambda: views(cfg)) if is_pretraining else (lambda: classifier_crops(GREY))
        made = DALIBatches(same_images, augment, BATCH, seed, threads, "cpu", is_pretraining)
        made.trainer = at(rank, ranks, completed, machines)
        return made

    return make


def read(loader):
    """Labels in their order, and all views."""
    labels, images = [], []
    for batch in loader:
        labels += batch[-1].tolist()
        if loader.indexed:
            indexes, views, targets = batch
            assert torch.equal(LABELS[indexes], targets), "an index is not that of its image"
            images.append(torch.stack(views, dim=1))
        else:
            images.append(batch[0])
    return labels, torch.cat(images)


def number_alike(views, others):
    return sum(torch.equal(*pair) for pair in zip(views, others, strict=False))


@pytest.mark.parametrize("kind", KINDS)
def test_batches_follow_seed_epoch_and_position(loader, kind):
    labels, views = read(loader(kind))
    assert len(loader(kind)) == PER_EPOCH
    assert len(loader(kind).dataset) == IMAGES
    assert len(set(labels)) == len(labels) == len(views) == PER_EPOCH * BATCH
    again, same_views = read(loader(kind, threads=2))
    assert again == labels
    assert torch.equal(same_views, views)
    for other in (loader(kind, seed=2), loader(kind, completed=PER_EPOCH)):
        other_labels, other_views = read(other)
        assert other_labels != labels
        assert number_alike(views, other_views) < IMAGES / 4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rank", "ranks"), [(0, 1), (1, 2)])
def test_a_run_resumed_within_an_epoch_continues_exactly(loader, kind, rank, ranks):
    per_epoch = len(loader(kind, rank=rank, ranks=ranks))
    labels, views = read(loader(kind, rank=rank, ranks=ranks, completed=per_epoch))
    resumed = read(loader(kind, rank=rank, ranks=ranks, completed=2 * per_epoch - 1))
    assert resumed[0] == labels[-BATCH:]
    assert torch.equal(resumed[1], views[-BATCH:])


@pytest.mark.parametrize("machines", [1, 2])
def test_ranks_share_the_images_and_draw_different_augmentations(loader, machines):
    ranks = [
        read(loader("pretraining", rank=rank, ranks=2, machines=machines)) for rank in range(2)
    ]
    (labels, views), (other_labels, other_views) = ranks
    assert len(labels) == len(other_labels) == IMAGES // 2 // BATCH * BATCH
    assert not set(labels) & set(other_labels)
    assert number_alike(views, other_views) < IMAGES / 8
    together = [label for pair in zip(labels, other_labels, strict=True) for label in pair]
    alone, _ = read(loader("pretraining"))
    assert together == alone, "the order is not that of one process"


def test_a_classifier_sees_crops_of_its_spec(loader, tmp_path):
    image = tmp_path / "two halves.png"
    pixels = np.zeros((32, 32, 3), np.uint8)
    pixels[:, 16:] = 255
    Image.fromarray(pixels).save(image)
    spec = ImageSpec(8, (0.5,) * 3, (0.25,) * 3, crop_min_scale=0.99, flip_prob=1.0)
    batches = DALIBatches([(str(image), 3)], lambda: classifier_crops(spec), 1, 1, 0, "cpu", False)
    [(images, targets)] = batches
    assert images.shape == (1, 3, 8, 8)
    assert targets.tolist() == [3]
    # Flipped, so that white is on the left: (1 − 0.5) / 0.25.
    torch.testing.assert_close(images[0, :, :, 0], torch.full((3, 8), 2.0))
    torch.testing.assert_close(images[0, :, :, -1], torch.full((3, 8), -2.0))


def test_an_animated_image_is_refused_at_once(tmp_path):
    animated = tmp_path / "animated.GIF"
    Image.new("RGB", (20, 20)).save(animated)
    with pytest.raises(UnreadableImage, match=r"animated\.GIF"):
        DALIBatches([(str(animated), 0)], lambda: classifier_crops(GREY), 1, 1, 0, "cpu", False)


@pytest.mark.parametrize(
    ("dali_device", "equalization", "named"),
    [
        ("cpu", 0.1, r"augmentations\.0\.equalization"),
        ("tpu", 0.0, r"dali\.device must be"),
        pytest.param(
            *("gpu", 0.0, r"dali\.device=gpu"),
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
    ],
)
def test_what_dali_cannot_do_is_refused(view, dali_device, equalization, named):
    augmentations = [view(equalization={"prob": equalization})]
    cfg = {"augmentations": augmentations, "data": {"dataset": "custom"}}
    with pytest.raises(ValueError, match=named):
        views(OmegaConf.create({**cfg, "dali": {"device": dali_device}}))


# solo-learn's repository resizes without cropping.
if form() == "pypi":

    def test_the_release_has_no_views_without_crops(view):
        cfg = OmegaConf.create(view(rrc={"enabled": False}))
        with pytest.raises(NotImplementedError, match=r"rrc\.enabled"):
            build_transform_pipeline_dali("custom", cfg, dali_device="cpu")


@pytest.mark.parametrize("name", ["truncated.jpg", "empty.jpg"])
def test_an_error_names_the_image_that_dali_cannot_read(image_folder, tmp_path, name):
    images = damaged_images.copied(image_folder, tmp_path / "Bilder mit Umlaut ü")
    bad = damaged_images.write_unreadable(damaged_images.classes(images)[-1], name)
    samples = labelled_files(images / "train")
    batches = DALIBatches(samples, lambda: classifier_crops(GREY), 37, 1, 1, "cpu", False)
    with pytest.raises(ValueError) as caught:
        list(batches)
    assert str(bad) in str(caught.value)
    assert not is_from_dali(RuntimeError("another"))
    assert explanation(RuntimeError("Critical error in pipeline: out of memory"), []) is None
