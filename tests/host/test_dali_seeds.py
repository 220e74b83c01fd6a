"""DALI's batches are those of the run's seed, of the rank and of the epoch."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from PIL import Image

pytest.importorskip("nvidia.dali")

from solo_margins.host.repairs.dali_pipelines import shuffled_by

from solo_margins import host

IMAGES, BATCH = 24, 6
KINDS = ("pretraining", "classification")


@pytest.fixture
def same_images(tmp_path):
    """One image in each of many classes, always the same one.

    A label tells which file was read, and two views differ by their augmentations alone.
    """
    pixels = np.random.default_rng(0).integers(0, 256, (36, 40, 3)).astype(np.uint8)
    for label in range(IMAGES):
        folder = tmp_path / "same" / f"{label:02}"
        folder.mkdir(parents=True)
        Image.fromarray(pixels).save(folder / "image.png")
    return tmp_path / "same"


@pytest.fixture
def data_module(same_images, view, monkeypatch, tmp_path):
    """A data module as it is on one rank of a run."""
    # A trainer sets it, for the whole process.
    monkeypatch.setattr(host.pl.utilities.rank_zero_only, "rank", 0)

    def make(kind, seed, rank=0, ranks=1, machines=1, encode=True, augmentations=None, **changes):
        local = ranks // machines
        place = {"NODE_RANK": rank // local, "LOCAL_RANK": rank % local}
        for name, value in {**place, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 1}.items():
            monkeypatch.setenv(name, str(value))
        if seed is None:
            monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)
        else:
            host.pl.seed_everything(seed)
        shared = {"dataset": "custom", "train_data_path": same_images, "batch_size": BATCH}
        shared |= {"num_workers": 2, "dali_device": "cpu", **changes}
        if kind == "classification":
            module = host.ClassificationDALIDataModule(**shared, val_data_path=same_images)
        else:
            augmented = OmegaConf.create(augmentations or view())
            transform = host.build_transform_pipeline_dali("custom", augmented, "cpu")
            module = host.PretrainDALIDataModule(
                **shared,
                transforms=host.FullTransformPipeline([host.NCropAugmentation(transform, 2)]),
                num_large_crops=2,
                num_small_crops=0,
                encode_indexes_into_labels=encode,
            )
        module.trainer = host.pl.Trainer(
            accelerator="cpu",
            devices=local,
            num_nodes=machines,
            strategy="ddp" if ranks > 1 else "auto",
            logger=False,
            enable_checkpointing=False,
            default_root_dir=tmp_path,
        )
        assert (module.trainer.global_rank, module.trainer.world_size) == (rank, ranks)
        module.setup()
        return module

    return make


@pytest.fixture
def epochs(data_module):
    """Two epochs: of each the labels in their order, all views, and the indexes if there are."""

    def read(kind, *args, **kwargs):
        loader = data_module(kind, *args, **kwargs).train_dataloader()
        return [_epoch(loader) for _ in range(2)]

    return read


def _epoch(loader):
    labels, views, indexes = [], [], []
    for batch in loader:
        labels += batch[-1].tolist()
        if len(batch) == 3:
            indexes += batch[0].tolist()
            views.append(torch.stack(batch[1], dim=1))
        else:
            views.append(batch[0])
    return labels, torch.cat(views), indexes


def number_alike(views, others):
    return sum(torch.equal(*pair) for pair in zip(views, others, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_batches(epochs, kind):
    first, again = epochs(kind, 5), epochs(kind, 5, num_workers=1)
    for (labels, views, indexes), (same_labels, same_views, same_indexes) in zip(
        first, again, strict=True
    ):
        assert (labels, indexes) == (same_labels, same_indexes)
        assert torch.equal(views, same_views)


@pytest.mark.parametrize("kind", KINDS)
def test_another_seed_gives_another_order_and_other_augmentations(epochs, kind):
    for (labels, views, _), (other_labels, other_views, _) in zip(
        epochs(kind, 1), epochs(kind, 2), strict=True
    ):
        assert sorted(labels) == sorted(other_labels) == list(range(IMAGES))
        assert labels != other_labels
        assert number_alike(views, other_views) < IMAGES / 4


@pytest.mark.parametrize("kind", KINDS)
def test_another_epoch_has_another_order_and_other_augmentations(epochs, kind):
    (labels, views, _), (next_labels, next_views, _) = epochs(kind, 1)
    assert sorted(labels) == sorted(next_labels)
    assert labels != next_labels
    assert number_alike(views, next_views) < IMAGES / 4


@pytest.mark.parametrize("machines", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_ranks_share_the_images_and_draw_different_augmentations(epochs, kind, machines):
    ranks = [epochs(kind, 1, rank, ranks=2, machines=machines) for rank in range(2)]
    for (labels, views, _), (other_labels, other_views, _) in zip(*ranks, strict=True):
        assert sorted(labels + other_labels) == list(range(IMAGES))
        assert number_alike(views, other_views) < IMAGES / 8


@pytest.mark.parametrize("seed", [1, 2])
def test_an_index_is_the_same_image_whatever_the_seed(epochs, seed):
    for labels, _, indexes in epochs("pretraining", seed):
        # Class folders and images are numbered in the order of their names.
        assert indexes == labels


def test_images_of_different_machines_have_different_indexes(epochs):
    ranks = [epochs("pretraining", 1, rank, 2, machines=2, encode=False) for rank in range(2)]
    for (_, _, indexes), (_, _, others) in zip(*ranks, strict=True):
        assert set(indexes) == set(range(BATCH))
        assert set(others) == set(range(BATCH, 2 * BATCH))


def test_unlabelled_images_follow_the_seed(epochs, view, tmp_path):
    folder = tmp_path / "unlabelled"
    folder.mkdir()
    shades = [20 * number for number in range(BATCH)]
    for shade in shades:
        Image.new("RGB", (36, 40), (shade, shade, shade)).save(folder / f"{shade}.png")
    names = ("color_jitter", "grayscale", "gaussian_blur", "solarization")
    plain = view(**{key: {"prob": 0.0} for key in names}, mean=[0, 0, 0], std=[1 / 255] * 3)
    settings = {"augmentations": plain, "train_data_path": folder, "no_labels": True}
    orders = []
    for seed in (1, 1, 2):
        (labels, views, _), _ = epochs("pretraining", seed, encode=False, **settings)
        assert labels == [-1] * BATCH
        orders.append(views.mean(dim=(1, 2, 3, 4)).round().int().tolist())
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2]) == shades


@pytest.mark.parametrize("seed", [1, 2])
def test_validation_keeps_its_order(data_module, seed):
    loader = data_module("classification", seed).val_dataloader()
    assert _epoch(loader)[0] == _epoch(loader)[0] == list(range(IMAGES))


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_seed_batches_are_always_the_same(epochs, kind):
    (labels, views, _), _ = epochs(kind, None)
    (same_labels, same_views, _), _ = epochs(kind, None)
    assert labels == same_labels
    assert torch.equal(views, same_views)


def test_a_reader_is_shuffled_once(same_images):
    """As by the plugin beside a solo-learn that has taken the repair up."""
    readers = pytest.importorskip("nvidia.dali").ops.readers
    reader = readers.File(file_root=str(same_images), shuffle_after_epoch=True)
    shuffled = shuffled_by(5, reader)
    assert shuffled is not reader
    assert shuffled_by(5, shuffled) is shuffled


def test_an_older_dali_shuffles_as_before_and_says_so():
    schema = SimpleNamespace(GetArgumentNames=lambda: ["shuffle_after_epoch"])
    reader = SimpleNamespace(schema=schema)
    with pytest.warns(UserWarning, match=r"DALI before 2\.1 shuffles"):
        assert shuffled_by(5, reader) is reader
