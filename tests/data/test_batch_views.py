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
VIEWS = 1500
WHOLE_VIEWS = 3000


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


def batch_of(images, seed=0, numbers=None):
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

    return ImageBatch(pixels, heights, widths, draw)


def step(number, probability=1.0):
    return tuple(probability if place == number else 0.0 for place in range(6))


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
    view = BatchView(size, **PLAIN, area=(0.2, 1.0), bicubic=bicubic, steps=step(5, 0.5))
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


@pytest.mark.parametrize(
    ("number", "by_pil"),
    [
        (1, lambda image: image.convert("L").convert("RGB")),
        (3, ImageOps.solarize),
        (4, ImageOps.equalize),
        (5, ImageOps.mirror),
    ],
)
def test_steps_without_strength_are_those_of_pil(photographs, number, by_pil):
    view = BatchView(32, **PLAIN, shorter_side=32, steps=step(number))
    views = view(batch_of(photographs[:50]))
    assert largest_difference(views, [by_pil(image) for image in photographs[:50]]) < 1.01


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


def test_whole_views_are_those_of_pil_with_the_same_numbers(photographs):
    images = photographs[:150]
    probabilities, strengths = (0.8, 0.3, 0.5, 0.3, 0.0, 0.5), (0.4, 0.4, 0.4, 0.1)
    drawn = torch.rand(len(images), NUMBERS, generator=torch.Generator().manual_seed(3))
    numbers = dict(zip(PARTS, drawn.split([*PARTS.values()], 1), strict=True))
    batch = batch_of(images, numbers=drawn)
    view = BatchView(32, **PLAIN, area=(0.2, 1.0), steps=probabilities, jitter=strengths)
    views = view(batch)
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
    spread = views.amax(1) - views.amin(1)
    edges = grey.diff(dim=1).abs().mean((1, 2)) + grey.diff(dim=2).abs().mean((1, 2))
    contrast = grey.flatten(1).std(1)
    of_channels = {}
    for name, channel in zip(("red", "green", "blue"), views.flatten(2).unbind(1), strict=True):
        values = channel.sort(1).values
        last = values.shape[1] - 1
        of_channels[f"mean of {name}"] = values.mean(1)
        of_channels[f"deviation of {name}"] = values.std(1)
        for share in (0.05, 0.25, 0.5, 0.75, 0.95):
            of_channels[f"quantile {share} of {name}"] = values[:, round(share * last)]
    return {
        **of_channels,
        "brightness": grey.mean((1, 2)),
        "contrast": contrast,
        "saturation": spread.mean((1, 2)),
        "colour": (views[:, 0] - views[:, 2]).mean((1, 2)),
        "green": (views[:, 1] - views[:, 2]).mean((1, 2)),
        "sharpness": edges / contrast.clamp(min=1e-3),
        "sharpness at the border": (grey[:, 0] - grey[:, 1]).abs().mean(1) / contrast.clamp(1e-3),
        "steps at the border": _border_steps(grey),
        "left and right": (grey[..., :16] - grey[..., 16:]).mean((1, 2)),
    }


def _border_steps(grey):
    """Return the step from the outermost to the next pixel, by the step from there inwards.

    It says how a blur continues the image beyond its border.
    """
    outer, inner = 0, 0
    for side in (grey, grey.flip(1), grey.mT, grey.flip(2).mT):
        steps = side[:, :3].diff(dim=1).abs().mean(2)
        outer, inner = outer + steps[:, 0], inner + steps[:, 1]
    return (outer + 1e-4) / (inner + 1e-4)


OFF = {
    "rrc": {"enabled": False},
    "color_jitter": {"prob": 0.0},
    "grayscale": {"prob": 0.0},
    "gaussian_blur": {"prob": 0.0},
    "solarization": {"prob": 0.0},
    "equalization": {"prob": 0.0},
    "horizontal_flip": {"prob": 0.0},
    "crop_size": 32,
    "mean": PLAIN["mean"],
    "std": PLAIN["std"],
}
JITTER = {"brightness": 0.0, "contrast": 0.0, "saturation": 0.0, "hue": 0.0}
SETTINGS = {
    "crop": {"rrc": {"enabled": True, "crop_min_scale": 0.2, "crop_max_scale": 0.9}},
    "brightness": {"color_jitter": {**JITTER, "prob": 1.0, "brightness": 0.8}},
    "contrast": {"color_jitter": {**JITTER, "prob": 1.0, "contrast": 0.8}},
    "saturation": {"color_jitter": {**JITTER, "prob": 0.5, "saturation": 1.5}},
    "hue": {"color_jitter": {**JITTER, "prob": 1.0, "hue": 0.3}},
    "blur": {"gaussian_blur": {"prob": 0.7}},
    # The strong view of the recipes for small images.
    "strong": {
        "rrc": {"enabled": True, "crop_min_scale": 0.2, "crop_max_scale": 1.0},
        "color_jitter": {
            "prob": 0.8,
            "brightness": 0.4,
            "contrast": 0.4,
            "saturation": 0.4,
            "hue": 0.1,
        },
        "grayscale": {"prob": 0.2},
        "gaussian_blur": {"prob": 0.5},
        "horizontal_flip": {"prob": 0.5},
    },
    "all": augmentations(crop_size=32, equalization={"prob": 0.2}),
}


def both_views(settings, photographs, number=VIEWS):
    """Return many views by PIL and by batches."""
    cfg = OmegaConf.create({**OFF, **settings})
    images = [photographs[i % len(photographs)] for i in range(number)]
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


def test_whole_strong_views_are_distributed_as_those_of_pil(photographs):
    images = [shaded(image) for image in photographs]
    by_pil, ours = both_views(SETTINGS["strong"], images, WHOLE_VIEWS)
    measured, expected = measures(ours), measures(by_pil)
    distances = {key: kolmogorov_smirnov(expected[key], measured[key]) for key in expected}
    assert all(distance < 1 for distance in distances.values()), distances
    shares = [is_grey(views).float().mean().item() for views in (by_pil, ours)]
    # Four standard deviations of the difference.
    assert abs(shares[0] - shares[1]) < 4 * math.sqrt(2 * 0.2 * 0.8 / WHOLE_VIEWS), shares


def is_grey(views):
    """Return which of the views (N,) have no colour."""
    return (views.amax(1) - views.amin(1)).amax((1, 2)) < 1e-6


@pytest.mark.parametrize("name", [name for name in SETTINGS if name != "strong"])
def test_views_are_distributed_as_those_of_pil(name, photographs):
    by_pil, ours = (measures(views) for views in both_views(SETTINGS[name], photographs))
    distances = {key: kolmogorov_smirnov(by_pil[key], ours[key]) for key in by_pil}
    assert all(distance < 1 for distance in distances.values()), distances


def test_other_strengths_would_be_noticed(photographs):
    _, weak = both_views(SETTINGS["all"], photographs)
    stronger = {**SETTINGS["all"], "grayscale": {"prob": 0.3}}
    _, grey = both_views(stronger, photographs)
    key = "saturation"
    assert kolmogorov_smirnov(measures(weak)[key], measures(grey)[key]) > 1


def test_crops_have_the_areas_and_places_of_torchvision():
    """The pixels of a ramp say where a crop was."""
    ramp = np.zeros((64, 64, 3), np.uint8)
    ramp[..., 0] = 4 * np.arange(64)[:, None]
    ramp[..., 1] = 4 * np.arange(64)[None, :]
    settings = {"rrc": {"enabled": True, "crop_min_scale": 0.1, "crop_max_scale": 0.8}}
    found = []
    for views in both_views(settings, [Image.fromarray(ramp)]):
        rows, columns = views[:, 0].mean(2), views[:, 1].mean(1)
        height, width = rows[:, 28] - rows[:, 3], columns[:, 28] - columns[:, 3]
        centres = rows.mean(1), columns.mean(1)
        found.append([height * width, height / width, *centres])
    for by_pil, ours in zip(*found, strict=True):
        assert kolmogorov_smirnov(by_pil, ours) < 1


def test_the_share_of_changed_images_is_that_of_the_setting(photographs):
    _, views = both_views({"grayscale": {"prob": 0.2}}, photographs)
    # Four standard deviations.
    assert abs(is_grey(views).float().mean() - 0.2) < 4 * math.sqrt(0.16 / VIEWS)


def test_each_image_has_numbers_of_its_own(photographs):
    cfg = OmegaConf.create({**OFF, **SETTINGS["all"]})
    views = batch_view("custom", cfg)(batch_of([photographs[0]] * 200))
    assert len(views.flatten(1).unique(dim=0)) > 195
