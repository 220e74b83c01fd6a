"""Views of whole batches are those that PIL makes of single images."""

import math
import random

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from PIL import Image, ImageFilter, ImageOps
from sklearn.datasets import load_sample_images
from solo.data.pretrain_dataloader import build_transform_pipeline
from torchvision.transforms import functional
from torchvision.transforms.functional import to_tensor
from views import augmentations

from solo_margins.data import batch_views
from solo_margins.data.batch_views import NUMBERS, PARTS, BatchView, ImageBatch, batch_view
from solo_margins.data.image_spec import ImageSpec

PLAIN = {"mean": (0.0,) * 3, "std": (1.0,) * 3}
VIEWS = 2000


@pytest.fixture(scope="module")
def photographs():
    """Pieces of 32 pixels of scikit-learn's two photographs."""
    pieces = [
        Image.fromarray(image[top : top + 96, left : left + 96]).resize((32, 32))
        for image in load_sample_images().images
        for top in range(0, 330, 48)
        for left in range(0, 540, 48)
    ]
    random.Random(0).shuffle(pieces)
    return pieces


def batch_of(images, seed=0, numbers=None, device="cpu"):
    """Return images of any sizes as a batch."""
    generator = torch.Generator().manual_seed(seed)
    heights = torch.tensor([image.height for image in images])
    widths = torch.tensor([image.width for image in images])
    pixels = torch.zeros(len(images), 3, int(heights.max()), int(widths.max()), dtype=torch.uint8)
    for place, image in enumerate(images):
        bytes_ = torch.from_numpy(np.array(image)).permute(2, 0, 1)
        pixels[place, :, : image.height, : image.width] = bytes_

    def draw():
        drawn = torch.rand(len(images), NUMBERS, generator=generator)
        return drawn if numbers is None else numbers

    return ImageBatch(pixels.to(device), heights, widths, draw)


def largest_difference(views, images):
    """Return the largest difference to PIL's images in steps of a byte."""
    expected = torch.stack([to_tensor(image) for image in images])
    return 255 * (views - expected).abs().max().item()


# image by image


@pytest.mark.parametrize("bicubic", [True, False])
@pytest.mark.parametrize("size", [7, 32, 50])
def test_crops_are_resampled_as_pil_does(photographs, bicubic, size):
    images = [image.resize((24 + 3 * (i % 5), 30)) for i, image in enumerate(photographs[:40])]
    numbers = torch.rand(40, NUMBERS, generator=torch.Generator().manual_seed(1))
    batch = batch_of(images, numbers=numbers)
    view = BatchView(size, **PLAIN, area=(0.2, 1.0), bicubic=bicubic, steps=(0, 0, 0, 0, 0, 0.5))
    parts = dict(zip(PARTS, numbers.split([*PARTS.values()], 1), strict=True))
    boxes = batch_views._crops(batch.heights.float(), batch.widths.float(), (0.2, 1.0), parts)
    expected = []
    method = Image.Resampling.BICUBIC if bicubic else Image.Resampling.BILINEAR
    for image, top, left, height, width, flips in zip(
        images, *(box.tolist() for box in boxes), (parts["steps"][:, 5] < 0.5).tolist(), strict=True
    ):
        crop = image.crop((left, top, left + width, top + height)).resize((size, size), method)
        expected.append(ImageOps.mirror(crop) if flips else crop)
    # PIL rounds to whole bytes after each direction.
    assert largest_difference(view(batch), expected) < 2


@pytest.mark.parametrize("size", [20, 32, 100])
def test_the_centre_is_what_torchvision_cuts_out(photographs, size):
    images = [image.resize((32 + i % 9, 37)) for i, image in enumerate(photographs[:30])]
    spec = ImageSpec(size, (0.4, 0.5, 0.6), (0.2, 0.25, 0.3))
    _, centre = batch_views.classifier_views(spec)
    _, transform = spec.transforms()
    expected = torch.stack([transform(image) for image in images])
    # A byte is 1 / 255, divided by the smallest standard deviation.
    assert (centre(batch_of(images)) - expected).abs().max() < 2.1 / 255 / 0.2


def test_images_that_are_not_resized_keep_every_byte(photographs):
    _, centre = batch_views.classifier_views(ImageSpec(32, **PLAIN))
    assert largest_difference(centre(batch_of(photographs[:9])), photographs[:9]) == 0


def test_equalization_is_that_of_pil(photographs):
    view = BatchView(32, **PLAIN, shorter_side=32, steps=(0, 0, 0, 0, 1, 0))
    views = view(batch_of(photographs[:50]))
    assert largest_difference(views, [ImageOps.equalize(each) for each in photographs[:50]]) < 1.01


@pytest.mark.parametrize("radius", [0.1, 0.3, 0.5, 1.0, 1.3, 1.6, 2.0])
@pytest.mark.parametrize("shape", [(32, 32), (17, 40)])
def test_blur_is_that_of_pil_up_to_the_border(photographs, radius, shape):
    pieces = [image.resize(shape) for image in photographs[:50]]
    images = 255 * torch.stack([to_tensor(image) for image in pieces])
    blurred = batch_views._blurred(images, torch.full((50, 1), radius)) / 255
    expected = torch.stack(
        [to_tensor(image.filter(ImageFilter.GaussianBlur(radius))) for image in pieces]
    )
    differences = 255 * (blurred - expected).abs()
    # Ties that the six roundings to whole bytes decide otherwise.
    assert differences.max() < 2.5
    assert differences.mean() < 0.06


@pytest.mark.parametrize("turn", [-0.5, -0.1, 0.0, 0.07, 0.5])
def test_hue_is_turned_as_torchvision_does(photographs, turn):
    images = torch.stack([to_tensor(image) for image in photographs[:50]])
    turned = batch_views._turned(255 * images, torch.full((50,), turn)) / 255
    expected = functional.adjust_hue(images, turn)
    torch.testing.assert_close(turned, expected, rtol=0, atol=0.51 / 255)


def by_pil_with(numbers, image, box, probabilities, strengths):
    """Return a view of 32 pixels that PIL makes with given random numbers, step after step."""
    chance = numbers["steps"].tolist()
    jitter, grey, blur, solarize, _, flip = (
        drawn < probability for drawn, probability in zip(chance, probabilities, strict=True)
    )
    top, left, height, width = box
    corners = (left, top, left + width, top + height)
    image = image.crop(corners).resize((32, 32), Image.Resampling.BICUBIC)
    if jitter:
        changes = (
            functional.adjust_brightness,
            functional.adjust_contrast,
            functional.adjust_saturation,
            functional.adjust_hue,
        )
        for kind in numbers["order"].argsort().tolist():
            strength, drawn = strengths[kind], numbers["factors"][kind].item()
            lowest = -strength if kind == 3 else max(0, 1 - strength)
            highest = strength if kind == 3 else 1 + strength
            image = changes[kind](image, lowest + (highest - lowest) * drawn)
    if grey:
        image = image.convert("L").convert("RGB")
    if blur:
        # SimCLR's: from 0.1 to 2 pixels.
        image = image.filter(ImageFilter.GaussianBlur(0.1 + 1.9 * numbers["blur"].item()))
    if solarize:
        image = ImageOps.solarize(image)
    return ImageOps.mirror(image) if flip else image


def test_whole_views_are_those_of_pil_with_the_same_numbers(photographs, device):
    images = photographs[:150]
    probabilities, strengths = (0.8, 0.3, 0.5, 0.3, 0.0, 0.5), (0.4, 0.4, 0.4, 0.1)
    drawn = torch.rand(len(images), NUMBERS, generator=torch.Generator().manual_seed(3))
    numbers = dict(zip(PARTS, drawn.split([*PARTS.values()], 1), strict=True))
    batch = batch_of(images, numbers=drawn, device=device)
    view = BatchView(32, **PLAIN, area=(0.2, 1.0), steps=probabilities, jitter=strengths)
    views = view(batch).cpu()
    boxes = batch_views._crops(batch.heights.float(), batch.widths.float(), (0.2, 1.0), numbers)
    expected = torch.stack(
        [
            to_tensor(
                by_pil_with(
                    {part: values[place] for part, values in numbers.items()},
                    image,
                    [side[place].item() for side in boxes],
                    probabilities,
                    strengths,
                )
            )
            for place, image in enumerate(images)
        ]
    )
    differences = 255 * (views - expected).abs().mean((1, 2, 3))
    # Each step rounds to whole bytes. Solarization makes that a large difference where a byte is
    # next to its threshold, and equalization would do so everywhere.
    assert differences.median() < 1
    assert differences.quantile(0.95) < 3


# distributions


def kolmogorov_smirnov(some, others):
    """Return the largest distance of two distributions, 1 where noise alone rarely gets."""
    both = torch.cat([some, others]).sort().values
    shares = [
        torch.searchsorted(values.sort().values, both, right=True) / len(values)
        for values in (some, others)
    ]
    # Above this in one of 10,000 cases.
    critical = math.sqrt(-math.log(0.0001 / 2) / 2 * (1 / len(some) + 1 / len(others)))
    return (shares[0] - shares[1]).abs().max().item() / critical


def measures(views):
    """Return what can be seen in views, each (N,)."""
    grey = (views * torch.tensor([0.299, 0.587, 0.114])[:, None, None]).sum(1)
    edges = grey.diff(dim=1).abs().mean((1, 2)) + grey.diff(dim=2).abs().mean((1, 2))
    contrast = grey.flatten(1).std(1)
    return {
        "brightness": grey.mean((1, 2)),
        "contrast": contrast,
        "saturation": (views.amax(1) - views.amin(1)).mean((1, 2)),
        "red and blue": (views[:, 0] - views[:, 2]).mean((1, 2)),
        "green and blue": (views[:, 1] - views[:, 2]).mean((1, 2)),
        "sharpness": edges / contrast.clamp(min=1e-3),
        "left and right": (grey[..., :16] - grey[..., 16:]).mean((1, 2)),
    }


# Every step with a probability of its own.
EVERY_STEP = augmentations(
    crop_size=32,
    grayscale={"prob": 0.2},
    gaussian_blur={"prob": 0.5},
    solarization={"prob": 0.1},
    equalization={"prob": 0.3},
    horizontal_flip={"prob": 0.4},
    **PLAIN,
)


def both_views(settings, images):
    """Return many views by PIL and by batches."""
    cfg = OmegaConf.create({**settings, "mean": list(PLAIN["mean"]), "std": list(PLAIN["std"])})
    images = [images[i % len(images)] for i in range(VIEWS)]
    torch.manual_seed(1)
    random.seed(1)
    by_pil = build_transform_pipeline("custom", cfg)
    return (
        torch.stack([by_pil(image) for image in images]),
        batch_view("custom", cfg)(batch_of(images)),
    )


def shaded(image):
    """Return an image that darkens to the left and to the top, so that flips can be seen."""
    height, width = image.height, image.width
    light = np.linspace(0.4, 1, width)[None, :, None] * np.linspace(0.7, 1, height)[:, None, None]
    return Image.fromarray((np.asarray(image) * light).astype(np.uint8))


def test_whole_views_are_distributed_as_those_of_pil(photographs):
    by_pil, ours = both_views(EVERY_STEP, [shaded(image) for image in photographs])
    measured, expected = measures(ours), measures(by_pil)
    distances = {key: kolmogorov_smirnov(expected[key], measured[key]) for key in expected}
    assert all(distance < 1 for distance in distances.values()), distances


def test_settings_of_a_configuration_reach_the_view():
    view = batch_view("custom", OmegaConf.create(EVERY_STEP))
    assert (view.size, view.area) == (32, (0.5, 1.0))
    # Jitter, grey, blur, solarization, equalization, flip; brightness to hue.
    assert view.steps == (0.8, 0.2, 0.5, 0.1, 0.3, 0.4)
    assert view.jitter == (0.4, 0.4, 0.2, 0.1)
    whole = {**EVERY_STEP, "rrc": {"enabled": False}}
    assert batch_view("custom", OmegaConf.create(whole)).area is None
    assert batch_view("cifar10", OmegaConf.create(EVERY_STEP)).mean == (0.4914, 0.4822, 0.4465)


def test_crops_have_the_areas_and_places_of_torchvision():
    """The pixels of a ramp say where a crop was."""
    ramp = np.zeros((64, 64, 3), np.uint8)
    ramp[..., 0] = 4 * np.arange(64)[:, None]
    ramp[..., 1] = 4 * np.arange(64)[None, :]
    settings = {"crop_size": 32, "num_crops": 2}
    settings["rrc"] = {"enabled": True, "crop_min_scale": 0.1, "crop_max_scale": 0.8}
    for step_ in ("color_jitter", "grayscale", "gaussian_blur", "solarization", "equalization"):
        settings[step_] = {"prob": 0.0}
    settings["horizontal_flip"] = {"prob": 0.0}
    found = []
    for views in both_views(settings, [Image.fromarray(ramp)]):
        rows, columns = views[:, 0].mean(2), views[:, 1].mean(1)
        height, width = rows[:, 28] - rows[:, 3], columns[:, 28] - columns[:, 3]
        centres = rows.mean(1), columns.mean(1)
        found.append([height * width, height / width, *centres])
    for by_pil, ours in zip(*found, strict=True):
        assert kolmogorov_smirnov(by_pil, ours) < 1


def test_each_image_has_numbers_of_its_own(photographs):
    views = batch_view("custom", OmegaConf.create(EVERY_STEP))(batch_of([photographs[0]] * 200))
    assert len(views.flatten(1).unique(dim=0)) > 195
