"""``key=value`` arguments on top of ``linear.yaml``, as the evaluation commands take them."""

from collections.abc import Iterable, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from solo_margins import resolvers
from solo_margins.data.dataset_paths import OURS
from solo_margins.training.checked_config import check_choice

# Settings whose values are not interpreted: any character may be part of a path.
PATHS = ("pretrained_feature_extractor", "data.train_path", "data.val_path")

# Settings of ``linear.yaml`` that say which backbone is shown which images.
WHAT_TO_EVALUATE = """
    data data.name data.dataset data.format data.download data.on_error data.fraction
    data.num_workers data.unlabelled_folder data.augmentations.crop_size data.augmentations.mean
    data.augmentations.std backbone.name backbone.kwargs pretrain_method
    performance.disable_channel_last seed
"""


def parse(
    arguments: Iterable[str], own: Mapping[str, Any], applicable: str = ""
) -> tuple[DictConfig, dict[str, Any]]:
    """Return ``linear.yaml`` with the arguments applied, and the command's own settings.

    Without ``data=…`` the images are those of the pretraining.

    Args:
        arguments: ``key=value`` each.
        own: settings of the command that ``linear.yaml`` does not have, with their defaults;
            ``device`` and ``extraction_batch_size`` are added to them.
        applicable: names of settings of ``linear.yaml`` that apply, besides which backbone and
            images.

    Raises:
        ValueError: an argument is unknown or cannot be used; the message is one sentence.
    """
    options = OmegaConf.create({**own, "device": "auto", "extraction_batch_size": 256})
    of_linear = f"{WHAT_TO_EVALUATE} {applicable}".split()
    known = [*PATHS, *of_linear, *map(str, options), "label_fraction"]
    values: dict[str, str] = {}
    for argument in arguments:
        key, is_setting, value = argument.partition("=")
        if not is_setting or key not in known:
            raise ValueError(
                f"{argument!r} is not a setting of the form key=value: "
                f"the keys are {', '.join(known)}."
            )
        values["data.fraction" if key == "label_fraction" else key] = value
    if values.get(PATHS[0], "null") in ("", "null"):
        raise ValueError("Name what to evaluate: pretrained_feature_extractor=<checkpoint>.")
    data = values.pop("data", "") or values.get("data.name", "")
    is_named = data not in ("", "null")
    if is_named:
        check_choice("data", data, OURS)
    cfg = resolvers.composed("linear.yaml", [f"data={data}"] if is_named else [])
    for key, value in values.items():
        if key in PATHS:
            OmegaConf.update(cfg, key, None if value in ("", "null") else value)
            continue
        try:
            (options if key in options else cfg).merge_with_dotlist([f"{key}={value}"])
        # The parser's own errors fill several lines.
        except Exception:
            raise ValueError(f"{key} must be a value in YAML's notation, got {value!r}.") from None
    return cfg, {str(name): options[name] for name in options}
