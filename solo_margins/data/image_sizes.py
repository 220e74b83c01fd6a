"""A warning about small images that views enlarge."""

import contextlib
import statistics
from typing import Any

from omegaconf import DictConfig

from solo_margins.config import setting
from solo_margins.data.class_folders import UnreadableImage, log
from solo_margins.data.folders import stored_at
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
    sides = []
    for index in range(0, len(images), 1 + len(images) // SAMPLED):
        # A damaged image is named when it is read for training.
        with contextlib.suppress(UnreadableImage):
            sides.append(_shorter_side(images, index))
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


def _shorter_side(images: Any, index: int) -> int:
    dataset, index = stored_at(images, index)
    if hasattr(dataset, "shapes"):
        # Decoded images know their sizes.
        return int(dataset.shapes[index].min())
    image, _ = dataset[index]
    return min(image.size)
