"""What DALI shows a classifier: size, statistics, crops and flips of the recipe."""

from __future__ import annotations

from typing import Any

from solo_margins.host import recipe


def follow_recipe(pipeline: Any, ops: Any, types: Any, images: recipe.ImageRecipe) -> None:
    """Replace the operators of one of the host's pipelines by those that a recipe asks for.

    The host's own crop to 224 pixels, flip every other image and know ImageNet's statistics only.

    Args:
        pipeline: with ``device`` and ``validation``; ``resize``, ``cmn`` and ``coin05`` are set.
        ops: DALI's operators.
        types: DALI's types.
        images: what the configuration asks for.
    """
    cubic = {"device": pipeline.device, "interp_type": types.INTERP_CUBIC}
    normalisation = {
        "device": pipeline.device,
        "dtype": types.FLOAT,
        "output_layout": types.NCHW,
        "mean": [255 * value for value in images.mean],
        "std": [255 * value for value in images.std],
    }
    if pipeline.validation:
        shorter = recipe.resize_before_crop(images.size)
        pipeline.resize = ops.Resize(resize_shorter=shorter, **cubic)
        normalisation["crop"] = (images.size, images.size)
    else:
        pipeline.resize = ops.RandomResizedCrop(
            size=images.size, random_area=(images.crop_min_scale, 1.0), **cubic
        )
    pipeline.cmn = ops.CropMirrorNormalize(**normalisation)
    pipeline.coin05 = ops.random.CoinFlip(probability=images.flip_prob)
