"""Images through PIL and through DALI on the CPU."""

import importlib.util

import pytest
import torch
from omegaconf import OmegaConf

from solo_margins import host
from solo_margins.host import recipe

needs_dali = pytest.mark.skipif(
    importlib.util.find_spec("nvidia") is None or importlib.util.find_spec("nvidia.dali") is None,
    reason="DALI is optional",
)


def test_a_pil_batch_has_indexes_views_and_labels(config, loaders):
    cfg = config("mocov3")
    train, val = loaders(cfg)
    indexes, views, targets = next(iter(train))
    assert [view.shape for view in views] == [(8, 3, 16, 16)] * 2
    assert not torch.equal(*views)
    # The folder is sorted by class, so the index tells the label.
    assert torch.equal(indexes // 12, targets)
    images, labels = next(iter(val))
    assert images.shape[1:] == (3, 16, 16), "validation must use the recipe's size"
    assert set(labels.tolist()) <= {0, 1, 2}


def test_every_augmentation_can_be_switched_off_and_on(view):
    from PIL import Image

    off = view(
        rrc={"enabled": False},
        color_jitter={"prob": 0},
        grayscale={"prob": 0},
        gaussian_blur={"prob": 0},
        solarization={"prob": 0},
        horizontal_flip={"prob": 0},
        mean=[0.5, 0.5, 0.5],
        std=[0.25, 0.25, 0.25],
    )
    grey = Image.new("RGB", (16, 16), (255, 128, 0))
    pixels = host.build_transform_pipeline("custom", OmegaConf.create(off))(grey)
    expected = torch.tensor([1.0, 128 / 255, 0.0]).sub(0.5).div(0.25)
    torch.testing.assert_close(pixels, expected[:, None, None].expand(3, 16, 16))

    always = {"prob": 1.0}
    solarized = OmegaConf.create({**off, "solarization": always})
    inverted = host.build_transform_pipeline("custom", solarized)(grey)
    expected = torch.tensor([0.0, 127 / 255, 0.0]).sub(0.5).div(0.25)
    torch.testing.assert_close(inverted, expected[:, None, None].expand(3, 16, 16))

    equalized = OmegaConf.create({**off, "equalization": always})
    assert host.build_transform_pipeline("custom", equalized)(grey).shape == (3, 16, 16)


def test_imagenet_is_normalised_with_its_true_deviation(view):
    transform = host.build_transform_pipeline("imagenet", OmegaConf.create(view()))
    assert tuple(transform.transforms[-1].std) == pytest.approx((0.229, 0.224, 0.225))
    _, validation = host.prepare_classification_transforms("imagenet")
    assert tuple(validation.transforms[-1].std) == pytest.approx((0.229, 0.224, 0.225))


def test_auto_augment_follows_the_size_of_the_recipe(config):
    cfg = config("mocov3")
    train, _ = host.prepare_classification_data(
        "custom",
        cfg.data.train_path,
        cfg.data.val_path,
        num_workers=0,
        auto_augment=True,
        batch_size=4,
    )
    assert next(iter(train))[0].shape == (4, 3, 16, 16)


@pytest.mark.parametrize(("size", "shorter"), [(16, 16), (112, 128), (224, 256)])
def test_validation_follows_size_and_statistics_of_the_recipe(raw_config, view, size, shorter):
    cfg = raw_config("mocov3")
    cfg.augmentations = [view(size, mean=[0.1, 0.2, 0.3], std=[0.4, 0.5, 0.6])]
    host.parse_pretrain_cfg(cfg)
    train, val = host.prepare_classification_transforms("custom")
    assert val.transforms[0].size == shorter
    assert val.transforms[1].size == (size, size)
    for transform in (train, val):
        assert tuple(transform.transforms[-1].mean) == (0.1, 0.2, 0.3)
        assert tuple(transform.transforms[-1].std) == (0.4, 0.5, 0.6)


def test_a_fraction_of_the_images_is_fixed_and_stratified(config, loaders):
    cfg = config("mocov3", "data.fraction=0.5", "optimizer.batch_size=6")
    kept = [loaders(cfg)[0].dataset.samples for _ in range(2)]
    assert kept[0] == kept[1]
    labels = [label for _, label in kept[0]]
    assert [labels.count(label) for label in range(3)] == [6, 6, 6]


def test_images_without_class_folders_have_no_label(config, loaders, image_folder):
    cfg = config(
        "mocov3",
        f"data.train_path={image_folder / 'flat'}",
        "data.no_labels=true",
        "data.val_path=null",
    )
    _, views, targets = next(iter(loaders(cfg)[0]))
    assert len(views) == 2
    assert set(targets.tolist()) == {-1}


@needs_dali
@pytest.mark.parametrize("encode", [False, True])
def test_pretraining_reads_with_dali_on_the_cpu(config, loaders, trainer, encode):
    cfg = config(
        "simclr", "data.format=dali", "dali.device=cpu", f"dali.encode_indexes_into_labels={encode}"
    )
    transform = host.FullTransformPipeline(
        [
            host.NCropAugmentation(
                host.build_transform_pipeline_dali(cfg.data.dataset, v, dali_device="cpu"),
                v.num_crops,
            )
            for v in cfg.augmentations
        ]
    )
    images = host.PretrainDALIDataModule(
        dataset=cfg.data.dataset,
        train_data_path=cfg.data.train_path,
        transforms=transform,
        num_large_crops=cfg.data.num_large_crops,
        num_small_crops=cfg.data.num_small_crops,
        num_workers=1,
        batch_size=cfg.optimizer.batch_size,
        no_labels=cfg.data.no_labels,
        data_fraction=cfg.data.fraction,
        dali_device=cfg.dali.device,
        encode_indexes_into_labels=cfg.dali.encode_indexes_into_labels,
    )
    batches = []

    class Watch(host.pl.Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            batches.append(batch)

    run = trainer(cfg, [Watch()])
    run.fit(host.SimCLR(cfg), datamodule=images)
    # 36 images in batches of 8, the incomplete one dropped, for two epochs.
    assert run.global_step == len(batches) == 8
    indexes, views, targets = batches[0]
    assert [view.shape for view in views] == [(8, 3, 16, 16)] * 2
    assert set(targets.tolist()) <= {0, 1, 2}
    if encode:
        assert torch.equal(indexes.flatten() // 12, targets)


@needs_dali
def test_classification_reads_with_dali_on_the_cpu_at_the_recipes_size(config, trainer):
    cfg = config("simclr")
    images = host.ClassificationDALIDataModule(
        dataset="custom",
        train_data_path=cfg.data.train_path,
        val_data_path=cfg.data.val_path,
        batch_size=8,
        num_workers=1,
        dali_device="cpu",
    )
    images.trainer = trainer(cfg)
    images.setup()
    for loader, number in ((images.train_dataloader(), 32), (images.val_dataloader(), 15)):
        seen = [(x, y) for x, y in loader]
        assert sum(len(y) for _, y in seen) == number
        assert seen[0][0].shape == (8, 3, 16, 16)
        assert {label for _, y in seen for label in y.tolist()} <= {0, 1, 2}


def test_a_classifier_is_trained_on_the_crops_of_the_recipe(config):
    cfg = config("mocov3")
    cfg.augmentations[0].crop_min_scale, cfg.augmentations[0].flip_prob = 0.4, 0.0
    recipe.remember(cfg)
    train, _ = host.prepare_classification_transforms("custom")
    crop, flip = train.transforms[:2]
    assert crop.scale == (0.4, 1.0)
    assert flip.p == 0.0
