"""DALI's loaders follow the seed and the rank, and run without CUDA and without workers."""

import pytest
import torch
from lightning.pytorch import Trainer, seed_everything
from lightning.pytorch.utilities import rank_zero_only
from omegaconf import OmegaConf

pytest.importorskip("nvidia.dali")

from solo.data.dali_dataloader import (
    ClassificationDALIDataModule,
    PretrainDALIDataModule,
    build_transform_pipeline_dali,
)
from solo.data.pretrain_dataloader import FullTransformPipeline, NCropAugmentation

SIZE, CLASSES, PER_CLASS, BATCH = 16, 2, 6, 4


@pytest.fixture
def images(tmp_path):
    for label in range(CLASSES):
        folder = tmp_path / f"class{label}"
        folder.mkdir()
        for index in range(PER_CLASS):
            pixels = bytes((37 * index + 101 * label + i) % 256 for i in range(3 * SIZE * SIZE))
            header = f"P6 {SIZE} {SIZE} 255\n".encode()
            (folder / f"{index}.ppm").write_bytes(header + pixels)
    return tmp_path


@pytest.fixture
def trainer(tmp_path, monkeypatch):
    # A trainer sets it, for the whole process.
    monkeypatch.setattr(rank_zero_only, "rank", 0)

    def make(machine=0, machines=1):
        for name, value in {"NODE_RANK": str(machine), "LOCAL_RANK": "0"}.items():
            monkeypatch.setenv(name, value)
        return Trainer(
            accelerator="cpu",
            devices=1,
            num_nodes=machines,
            strategy="ddp" if machines > 1 else "auto",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            default_root_dir=tmp_path,
        )

    return make


@pytest.fixture
def pretraining(images):
    def make(trainer, num_workers=1, **settings):
        never = {"prob": 0.0}
        view = {
            "rrc": {"enabled": True, "crop_min_scale": 0.5, "crop_max_scale": 1.0},
            "color_jitter": never,
            "grayscale": never,
            "gaussian_blur": never,
            "solarization": never,
            "equalization": never,
            "horizontal_flip": {"prob": 0.5},
            "crop_size": SIZE,
        }
        transform = build_transform_pipeline_dali("custom", OmegaConf.create(view), "cpu")
        data = PretrainDALIDataModule(
            dataset="custom",
            train_data_path=str(images),
            transforms=FullTransformPipeline([NCropAugmentation(transform, 2)]),
            num_large_crops=2,
            num_small_crops=0,
            num_workers=num_workers,
            batch_size=BATCH,
            dali_device="cpu",
            **settings,
        )
        data.trainer = trainer
        data.setup()
        return data

    return make


@pytest.fixture
def classification(images):
    def make(trainer, num_workers=1):
        data = ClassificationDALIDataModule(
            dataset="custom",
            train_data_path=str(images),
            val_data_path=str(images),
            batch_size=BATCH,
            num_workers=num_workers,
            dali_device="cpu",
        )
        data.trainer = trainer
        data.setup()
        return data

    return make


@pytest.mark.parametrize("num_workers", [0, 1])
def test_pretraining(pretraining, trainer, num_workers):
    loader = pretraining(trainer(), num_workers).train_dataloader()
    # DeepCluster v2 asks for this.
    assert len(loader.dataset) == CLASSES * PER_CLASS
    batches = list(loader)
    assert len(batches) == 3
    for _, views, targets in batches:
        assert [view.shape for view in views] == [(BATCH, 3, SIZE, SIZE)] * 2
        assert set(targets.tolist()) <= set(range(CLASSES))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_classification(classification, trainer, num_workers):
    data = classification(trainer(), num_workers)
    for loader in (data.train_dataloader(), data.val_dataloader()):
        labels = [label for _, targets in loader for label in targets.tolist()]
        assert sorted(labels) == sorted([*range(CLASSES)] * PER_CLASS)


def indexes_and_views(loader):
    batches = list(loader)
    indexes = [index for indexes, _, _ in batches for index in indexes.tolist()]
    return indexes, torch.cat([torch.stack(views, dim=1) for _, views, _ in batches])


def test_pretraining_follows_the_seed(pretraining, trainer):
    orders, pixels = [], []
    for seed in (1, 1, 2):
        seed_everything(seed)
        loader = pretraining(trainer(), encode_indexes_into_labels=True).train_dataloader()
        (order, views), (next_order, _) = indexes_and_views(loader), indexes_and_views(loader)
        assert sorted(order) == sorted(next_order) == list(range(CLASSES * PER_CLASS))
        assert order != next_order
        orders.append(order)
        # By image: what differs then are the augmentations.
        pixels.append(views[torch.tensor(order).argsort()])
    assert orders[0] == orders[1] != orders[2]
    assert torch.equal(pixels[0], pixels[1])
    assert not torch.equal(pixels[0], pixels[2])


def test_classification_follows_the_seed(classification, trainer):
    training, validation = [], []
    for seed in (1, 1, 2):
        seed_everything(seed)
        data = classification(trainer())
        training.append(torch.cat([images for images, _ in data.train_dataloader()]))
        validation.append(torch.cat([images for images, _ in data.val_dataloader()]))
    assert torch.equal(training[0], training[1])
    assert not torch.equal(training[0], training[2])
    assert torch.equal(validation[0], validation[2])


def test_machines_number_images_differently_and_draw_different_augmentations(
    images, pretraining, trainer
):
    first, *others = sorted(images.rglob("*.ppm"))
    for file in others:
        file.write_bytes(first.read_bytes())
    (indexes, views), (other_indexes, other_views) = (
        indexes_and_views(pretraining(trainer(machine, machines=2)).train_dataloader())
        for machine in range(2)
    )
    assert not set(indexes) & set(other_indexes)
    assert not torch.equal(views, other_views)
