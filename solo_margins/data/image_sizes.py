"""A warning about small images that views enlarge."""

import statistics
from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig
from PIL import Image
from torch.utils.data import Subset

from solo_margins.config import setting
from solo_margins.data.class_folders import log
from solo_margins.data.folders import ImageFiles
from solo_margins.ranks import is_rank_zero

# Images whose sizes stand for those of all.
SAMPLED = 32
# Share of the size of the views below which images are much smaller.
MUCH_SMALLER = 0.5


def warn_of_small_images(cfg: DictConfig, images: Any) -> None:
    """Log one sentence, on rank 0, if the views of a pretraining are much larger than its images.

    Args:
        cfg: a parsed pretraining configuration.
        images: its training images, untransformed.
    """
    size = max(int(view.crop_size) for view in cfg.augmentations)
    sides = sorted(_sampled_sides(images))
    if not sides:
        return
    stored = statistics.median_low(sides)
    if stored >= MUCH_SMALLER * size or not is_rank_zero():
        return
    key = "image.size" if setting(cfg, "image.size") is not None else "augmentations.*.crop_size"
    log.warning(
        "The images of data.train_path=%s are %s px and are enlarged to %s, which makes every step "
        "slower: %s=%s trains at their own size.",
        setting(cfg, "data.train_path"),
        stored,
        size,
        key,
        stored,
    )


def _sampled_sides(images: Any) -> Iterator[int]:
    """Yield the shorter sides of some evenly spaced images; damaged ones are left out."""
    number = min(SAMPLED, len(images))
    for place in range(number):
        side = _shorter_side(images, place * len(images) // number)
        if side is not None:
            yield side


def _shorter_side(images: Any, index: int) -> int | None:
    if isinstance(images, Subset):
        return _shorter_side(images.dataset, images.indices[index])
    if hasattr(images, "shapes"):
        return int(images.shapes[index].min())
    if not isinstance(images, ImageFiles):
        image, _ = images[index]
        return min(image.size)
    file, _ = images.samples[index]
    try:
        # Reads the header alone.
        with Image.open(file) as image:
            return min(image.size)
    # Decoders raise any kind of error on damaged files; reading them will name the file.
    except Exception:
        return None
