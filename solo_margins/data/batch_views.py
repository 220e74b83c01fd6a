"""Views of whole batches of images, on any device: solo-learn's augmentations, image by image.

What PIL does to one image is done here to all images of a batch at once, each with random numbers
of its own. They are drawn on the CPU, so that every device makes the same views. Until the end
values are whole numbers from 0 to 255, rounded where PIL rounds them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor

from solo_margins.data.image_spec import ImageSpec, resize_before_crop
from solo_margins.data.image_statistics import statistics_of

try:
    from kornia.color import rgb_to_grayscale
    from kornia.enhance import equalize as kornia_equalize
except ModuleNotFoundError as missing:
    raise ImportError(
        "data.format=tensors needs kornia, which is not installed: run "
        '`pip install ".[train]"` in the folder of solo-margins, or use data.format=image_folder.'
    ) from missing

# As torchvision: tries to find a crop that fits, and its range of width over height.
TRIES = 10
RATIOS = (3 / 4, 4 / 3)
# As solo-learn: standard deviation of the blur in pixels, and the first inverted value.
BLURS = (0.1, 2.0)
SOLARIZED_FROM = 128
# Pixels to each side of the box that makes the strongest blur, and boxes of a blur.
BOX_REACH = 2
BOX_PASSES = 3
# PIL cuts the weights of a box off to whole numbers, so that a tie is rounded down.
BELOW_HALF = 0.499

# Columns of the strengths of jitter; brightness is the first.
CONTRAST, SATURATION, HUE = 1, 2, 3

# Random numbers of one view of an image, by what they are for.
PARTS = {
    "area": TRIES,
    "ratio": TRIES,
    "place": 2,
    "steps": 6,  # whether jitter, grey, blur, solarization, equalization and flip are done
    "factors": 4,
    "order": 4,
    "blur": 1,
}
NUMBERS = sum(PARTS.values())


@dataclass(frozen=True)
class ImageBatch:
    """Images of any sizes, padded to the largest.

    Attributes:
        pixels: (N, 3, H, W) bytes, on the device that the views are made on.
        heights: (N,) of the images without padding, on the CPU, as all random numbers.
        widths: (N,).
        draw: returns (N, NUMBERS) random numbers from 0 to 1, for one view.
    """

    pixels: Tensor
    heights: Tensor
    widths: Tensor
    draw: Callable[[], Tensor]


@dataclass(frozen=True)
class BatchView:
    """Makes one view of each image of a batch.

    Attributes:
        size: of the view, in pixels.
        mean: of the channels, for normalisation.
        std: of the channels.
        area: smallest and largest share of the image in a random crop; None for the centre.
        shorter_side: length that a whole image's shorter side is resized to before its centre is
            cut out.
        bicubic: how images are resampled; otherwise bilinear.
        steps: probabilities of jitter, grey, blur, solarization, equalization and flip.
        jitter: strengths of brightness, contrast, saturation and hue.
    """

    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    area: tuple[float, float] | None = None
    shorter_side: int = 0
    bicubic: bool = True
    steps: tuple[float, ...] = (0.0,) * 6
    jitter: tuple[float, ...] = (0.0,) * 4

    def __call__(self, batch: ImageBatch) -> Tensor:
        """Return the views (N, 3, size, size), normalised."""
        numbers = dict(zip(PARTS, batch.draw().split([*PARTS.values()], 1), strict=True))
        jitter, grey, blur, solarize, equalize, flip = (
            numbers["steps"] < torch.tensor(self.steps)
        ).unbind(1)
        images = self._resampled(batch, numbers, flip)
        _change(images, jitter, self._jittered, numbers["factors"], numbers["order"])
        _change(images, grey, _without_colour)
        _change(images, blur, _blurred, BLURS[0] + (BLURS[1] - BLURS[0]) * numbers["blur"])
        _change(images, solarize, _solarized)
        _change(images, equalize, _equalized)
        mean = 255 * images.new_tensor(self.mean)[:, None, None]
        std = 255 * images.new_tensor(self.std)[:, None, None]
        return images.sub_(mean).div_(std)

    def _resampled(self, batch: ImageBatch, numbers: dict[str, Tensor], flip: Tensor) -> Tensor:
        heights, widths = batch.heights.float(), batch.widths.float()
        if self.area is None:
            shorter = torch.minimum(heights, widths)
            # torchvision rounds down.
            rows = (self.shorter_side * heights / shorter).floor()
            columns = (self.shorter_side * widths / shorter).floor()
            top = left = torch.zeros(())
        else:
            top, left, heights, widths = _crops(heights, widths, self.area, numbers)
            rows = columns = torch.full_like(heights, self.size)
        vertical = self._weights(top, heights, rows, batch.pixels.shape[2])
        horizontal = self._weights(left, widths, columns, batch.pixels.shape[3])
        horizontal = torch.where(flip[:, None, None], horizontal.flip(1), horizontal)
        # The same for the three channels.
        vertical = vertical.to(batch.pixels.device)[:, None]
        horizontal = horizontal.to(batch.pixels.device)[:, None]
        images = _as_bytes(batch.pixels.to(horizontal.dtype) @ horizontal.mT)
        return _as_bytes(vertical @ images)

    def _weights(self, start: Tensor, length: Tensor, resized: Tensor, pixels: int) -> Tensor:
        """Return how much each pixel of a side counts for each of the view's, (N, size, pixels).

        As PIL resizes: the filter grows with the reduction, and sees nothing outside the crop.
        """
        scale = (length / resized)[:, None, None]
        start = start[..., None, None]
        length = length[..., None, None]
        # torchvision rounds the first row of a central crop half to even.
        first = ((resized - self.size) / 2).round()[:, None, None]
        centres = (torch.arange(self.size)[:, None] + first + 0.5) * scale
        places = torch.arange(pixels) - start + 0.5
        distances = ((places - centres) / scale.clamp(min=1)).abs_()
        weights = _cubic(distances) if self.bicubic else (1 - distances).clamp_(min=0)
        weights = weights * ((places > 0) & (places < length))
        return weights / weights.sum(2, keepdim=True)

    def _jittered(self, images: Tensor, numbers: Tensor, order: Tensor) -> Tensor:
        """Change brightness, contrast, saturation and hue, in an order of each image's own."""
        strengths = torch.tensor(self.jitter)
        lowest = (1 - strengths).clamp(min=0)
        highest = 1 + strengths
        factors = lowest + (highest - lowest) * numbers
        turns = strengths[HUE] * (2 * numbers[:, HUE] - 1)
        factors[:, HUE] = 1
        for change in order.argsort(1).unbind(1):
            factor = factors.gather(1, change[:, None])[:, 0]
            # Shares of the image, its grey values and their mean in the changed image.
            of_grey = (1 - factor) * (change == SATURATION)
            of_mean = (1 - factor) * (change == CONTRAST)
            shares = torch.stack([factor, of_grey, of_mean])
            own, of_grey, of_mean = shares.to(images.device)[..., None, None, None]
            grey = _grey(images)
            added = of_grey * grey + of_mean * grey.mean((1, 2, 3), keepdim=True).round_()
            # PIL rounds down here.
            images = torch.addcmul(added, images, own).clamp_(0, 255).floor_()
            if self.jitter[HUE]:
                _change(images, change == HUE, _turned, turns)
        return images


def batch_view(dataset: str, view: DictConfig) -> BatchView:
    """Return a view of a pretraining configuration.

    Args:
        dataset: name of the data set, which decides on mean and standard deviation; other data
            takes them from ``view.mean`` and ``view.std``.
        view: as for solo-learn's own augmentations by PIL.
    """
    size = int(view.crop_size)
    crop = (view.rrc.get("crop_min_scale", 0.08), view.rrc.get("crop_max_scale", 1.0))
    strengths = ("brightness", "contrast", "saturation", "hue")
    steps = ("color_jitter", "grayscale", "gaussian_blur", "solarization", "equalization")
    mean, std = statistics_of(dataset, view)
    return BatchView(
        size,
        mean,
        std,
        area=crop if view.rrc.enabled else None,
        shorter_side=size,
        steps=tuple(float(view[name].prob) for name in (*steps, "horizontal_flip")),
        jitter=tuple(float(view.color_jitter.get(name, 0)) for name in strengths),
    )


def classifier_views(spec: ImageSpec) -> tuple[BatchView, BatchView]:
    """Return the views for training a classifier (crops) and validating it (centre)."""
    crops = BatchView(
        spec.size,
        spec.mean,
        spec.std,
        area=(spec.crop_min_scale, 1.0),
        bicubic=False,
        steps=(0.0,) * 5 + (spec.flip_prob,),
    )
    shorter = spec.size if spec.validates_whole_image else resize_before_crop(spec.size)
    centre = BatchView(spec.size, spec.mean, spec.std, shorter_side=shorter, bicubic=False)
    return crops, centre


def _change(images: Tensor, chosen: Tensor, change: Any, *numbers: Tensor) -> None:
    """Change the chosen images of a batch in place, each by its own numbers."""
    rows = chosen.nonzero().flatten()
    if len(rows):
        on_device = rows.to(images.device)
        images[on_device] = change(images[on_device], *(value[rows] for value in numbers))


def _crops(
    heights: Tensor, widths: Tensor, area: tuple[float, float], numbers: dict[str, Tensor]
) -> tuple[Tensor, ...]:
    """Return top, left, height and width of random crops, as torchvision chooses them."""
    areas = (area[0] + (area[1] - area[0]) * numbers["area"]) * (heights * widths)[:, None]
    low, high = math.log(RATIOS[0]), math.log(RATIOS[1])
    ratios = (low + (high - low) * numbers["ratio"]).exp()
    tried = torch.stack([(areas / ratios).sqrt().round(), (areas * ratios).sqrt().round()])
    sides = torch.stack([heights, widths])
    fits = ((tried >= 1) & (tried <= sides[..., None])).all(0)
    first = fits.int().argmax(1)[None, :, None].expand(2, -1, 1)
    # Where no try fits: as much of the image as the ratios allow, from its centre.
    whole = torch.stack(
        [
            torch.minimum(heights, (widths / RATIOS[0]).round()),
            torch.minimum(widths, (heights * RATIOS[1]).round()),
        ]
    )
    found = fits.any(1)
    crops = torch.where(found, tried.gather(2, first)[..., 0], whole)
    room = sides - crops
    places = torch.where(found, (numbers["place"].T * (room + 1)).floor(), (room / 2).floor())
    return (*torch.minimum(places, room), *crops)


def _as_bytes(images: Tensor) -> Tensor:
    """Round and clip as PIL does after each direction; bicubic filters overshoot."""
    return images.round_().clamp_(0, 255)


def _grey(images: Tensor) -> Tensor:
    return rgb_to_grayscale(images).round_()


def _without_colour(images: Tensor) -> Tensor:
    return _grey(images).expand_as(images)


def _solarized(images: Tensor) -> Tensor:
    return torch.where(images < SOLARIZED_FROM, images, 255 - images)


def _equalized(images: Tensor) -> Tensor:
    return 255 * kornia_equalize(images / 255)


def _cubic(distances: Tensor) -> Tensor:
    """Return PIL's bicubic filter at distances in pixels."""
    near = (1.5 * distances - 2.5) * distances**2 + 1
    far = ((2.5 - 0.5 * distances) * distances - 4) * distances + 2
    return torch.where(distances < 1, near, torch.where(distances < 2, far, 0.0))


def _blurred(images: Tensor, deviations: Tensor) -> Tensor:
    """Blur as PIL does: three boxes along the rows, then three along the columns.

    The outermost pixels of a box count in part. Before each box the image is continued by the
    pixels of its border, which are no longer those that it began with.
    """
    variances = deviations**2 / 3
    reach = (((12 * variances + 1).sqrt() - 1) / 2).floor()
    part = (2 * reach + 1) * (reach * (reach + 1) - 3 * variances)
    part = part / (6 * (variances - (reach + 1) ** 2))
    offsets = torch.arange(-BOX_REACH, BOX_REACH + 1)
    boxes = (offsets.abs() <= reach) + part * (offsets.abs() == reach + 1)
    boxes = boxes / boxes.sum(1, keepdim=True)
    for axis in (3, 2):
        box = _box_matrix(boxes, offsets, images.shape[axis]).to(images.device)[:, None]
        for _ in range(BOX_PASSES):
            images = images @ box.mT if axis == 3 else box @ images
            images = images.add_(BELOW_HALF).floor_()
    return images


def _box_matrix(boxes: Tensor, offsets: Tensor, size: int) -> Tensor:
    """Return how much each pixel of a side counts for each pixel after a box, (N, size, size)."""
    neighbours = (torch.arange(size)[:, None] + offsets).clamp(0, size - 1)
    matrix = torch.zeros(len(boxes), size, size)
    neighbours = neighbours.expand(len(boxes), -1, -1)
    return matrix.scatter_add_(2, neighbours, boxes[:, None].expand(-1, size, -1))


def _turned(images: Tensor, turns: Tensor) -> Tensor:
    """Turn the hue by a share of the circle; kornia's way over HSV takes five times as long."""
    red, green, blue = images.unbind(1)
    top, lowest = images.amax(1), images.amin(1)
    spread = top - lowest
    # Hue in sixths of the circle; grey has none.
    scale = 1 / spread.clamp(min=1e-6)
    hue = torch.where(
        top == red,
        (green - blue) * scale,
        torch.where(top == green, (blue - red) * scale + 2, (red - green) * scale + 4),
    )
    hue = hue + 6 * turns.to(images.device)[:, None, None]
    channels = []
    for offset in (5, 3, 1):
        place = (hue + offset).remainder_(6)
        share = torch.minimum(place, 4 - place).clamp_(0, 1)
        channels.append(torch.addcmul(top, spread, share, value=-1))
    return torch.stack(channels, 1).round_()
