"""Augmentations of views in both versions of solo-learn."""

import torch
from omegaconf import OmegaConf
from PIL import Image
from solo.data.pretrain_dataloader import build_transform_pipeline


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
    pixels = build_transform_pipeline("custom", OmegaConf.create(off))(grey)
    expected = torch.tensor([1.0, 128 / 255, 0.0]).sub(0.5).div(0.25)
    torch.testing.assert_close(pixels, expected[:, None, None].expand(3, 16, 16))

    always = {"prob": 1.0}
    solarized = OmegaConf.create({**off, "solarization": always})
    inverted = build_transform_pipeline("custom", solarized)(grey)
    expected = torch.tensor([0.0, 127 / 255, 0.0]).sub(0.5).div(0.25)
    torch.testing.assert_close(inverted, expected[:, None, None].expand(3, 16, 16))

    equalized = OmegaConf.create({**off, "equalization": always})
    assert build_transform_pipeline("custom", equalized)(grey).shape == (3, 16, 16)
