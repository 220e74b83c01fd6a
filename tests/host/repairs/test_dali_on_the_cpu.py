"""DALI's loaders on a machine without CUDA, and without workers."""

import pytest
from lightning.pytorch import Trainer
from omegaconf import OmegaConf

pytest.importorskip("nvidia.dali")

from solo.data.dali_dataloader import (
    ClassificationDALIDataModule,
    PretrainDALIDataModule,
    build_transform_pipeline_dali,
)
from solo.data.pretrain_dataloader import FullTransformPipeline, NCropAugmentation

SIZE, CLASSES, PER_CLASS = 16, 2, 6


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
def trainer(tmp_path):
    return Trainer(
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        default_root_dir=tmp_path,
    )


@pytest.mark.parametrize("num_workers", [0, 1])
def test_pretraining(images, trainer, num_workers):
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
    pipeline = build_transform_pipeline_dali("custom", OmegaConf.create(view), dali_device="cpu")
    data = PretrainDALIDataModule(
        dataset="custom",
        train_data_path=str(images),
        transforms=FullTransformPipeline([NCropAugmentation(pipeline, 2)]),
        num_large_crops=2,
        num_small_crops=0,
        num_workers=num_workers,
        batch_size=4,
        dali_device="cpu",
    )
    data.trainer = trainer
    data.setup()
    loader = data.train_dataloader()
    # DeepCluster v2 asks for this.
    assert len(loader.dataset) == CLASSES * PER_CLASS
    batches = list(loader)
    assert len(batches) == 3
    for _, views, targets in batches:
        assert [view.shape for view in views] == [(4, 3, SIZE, SIZE)] * 2
        assert set(targets.tolist()) <= set(range(CLASSES))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_classification(images, trainer, num_workers):
    data = ClassificationDALIDataModule(
        dataset="custom",
        train_data_path=str(images),
        val_data_path=str(images),
        batch_size=4,
        num_workers=num_workers,
        dali_device="cpu",
    )
    data.trainer = trainer
    data.setup()
    for loader in (data.train_dataloader(), data.val_dataloader()):
        labels = [label for _, targets in loader for label in targets.tolist()]
        assert sorted(labels) == sorted([*range(CLASSES)] * PER_CLASS)
