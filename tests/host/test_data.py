"""Augmentations of views, and what a method makes of images without labels."""

import pytest
import torch
from omegaconf import OmegaConf
from PIL import Image

from solo_margins import host


def test_every_augmentation_can_be_switched_off_and_on(view):
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


def test_unlabelled_images_neither_teach_nor_count(config, raw_config):
    cfg = config("simclr", "data.unlabelled_folder=more")
    method = host.SimCLR(cfg)
    images, targets = torch.randn(4, 3, 16, 16), torch.tensor([0, -1, 1, -1])
    out = method.base_training_step(images, targets)
    logits = out["logits"]
    expected = torch.nn.functional.cross_entropy(logits[::2], targets[::2])
    torch.testing.assert_close(out["loss"], expected)
    hits = (logits[::2].argmax(1) == targets[::2]).float().mean() * 100
    torch.testing.assert_close(out["acc1"].squeeze(), hits)
    nothing = method.base_training_step(images, torch.full((4,), -1))
    assert nothing["acc1"] == nothing["loss"] == 0


@pytest.mark.parametrize(("name", "kept"), [("sgd", {"momentum"}), ("adamw", {"betas"})])
def test_settings_of_another_optimizer_are_dropped(raw_config, name, kept):
    cfg = raw_config("simclr", f"optimizer.name={name}")
    cfg.optimizer.kwargs = {"momentum": 0.8, "eta": 0.001, "exclude_bias_n_norm": True}
    assert set(host.parse_pretrain_cfg(cfg).optimizer.kwargs) == kept
