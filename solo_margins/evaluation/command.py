"""``key=value`` arguments on top of ``linear.yaml``, as the evaluation commands take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from solo_margins import resolvers
from solo_margins.data.dataset_paths import OURS
from solo_margins.training.checked_config import check_choice

PATHS = ("pretrained_feature_extractor", "data.train_path", "data.val_path")
"""Settings whose values are not interpreted: any character may be part of a path."""

WHAT_TO_EVALUATE = (
    *PATHS,
    "data",
    "data.name",
    "data.dataset",
    "data.format",
    "data.download",
    "data.on_error",
    "data.fraction",
    "data.num_workers",
    "data.unlabelled_folder",
    "data.augmentations.crop_size",
    "data.augmentations.mean",
    "data.augmentations.std",
    "backbone.name",
    "backbone.kwargs",
    "pretrain_method",
    "performance.disable_channel_last",
    "seed",
)
"""Settings of ``linear.yaml`` that say which backbone is shown which images."""

Own = Mapping[str, tuple[type, Any]]
"""Settings that a command has besides, by name: their type and default."""

SHARED: Own = {
    "label_fraction": (float, None),
    "device": (str, "auto"),
    "extraction_batch_size": (int, 256),
}


def parse(
    arguments: Sequence[str], own: Own, applicable: Sequence[str] = ()
) -> tuple[DictConfig, dict[str, Any]]:
    """Return ``linear.yaml`` with the arguments applied, and the command's own settings.

    Without ``data=…`` the images are those of the pretraining.

    Args:
        arguments: ``key=value`` each.
        own: settings of the command that ``linear.yaml`` does not have.
        applicable: settings of ``linear.yaml`` that apply, besides which backbone and images.

    Raises:
        ValueError: an argument is unknown or cannot be used; the message is one sentence.
    """
    own = {**own, **SHARED}
    known = (*WHAT_TO_EVALUATE, *applicable)
    found = {name: default for name, (_, default) in own.items()}
    given: dict[str, Any] = {}
    for argument in arguments:
        key, is_setting, text = argument.partition("=")
        if is_setting and key in own:
            found[key] = _typed(key, text, own[key][0])
        elif is_setting and key in known:
            given[key] = _interpreted(key, text)
        else:
            raise ValueError(
                f"{argument!r} is not a setting of the form key=value: "
                f"the keys are {', '.join((*known, *own))}."
            )
    if given.get("pretrained_feature_extractor") is None:
        raise ValueError("Name what to evaluate: pretrained_feature_extractor=<checkpoint>.")
    if found["label_fraction"] is not None:
        given["data.fraction"] = found["label_fraction"]
    return _compose(given), found


def _typed(key: str, text: str, kind: type) -> Any:
    try:
        return kind(text)
    except ValueError:
        wanted = "a whole number" if kind is int else "a number"
        raise ValueError(f"{key} must be {wanted}, got {text!r}.") from None


def _interpreted(key: str, text: str) -> Any:
    if key in PATHS:
        return None if text in ("", "null") else text
    return OmegaConf.to_container(OmegaConf.from_dotlist([f"value={text}"]))["value"]  # type: ignore[call-overload, index]


def _compose(given: dict[str, Any]) -> DictConfig:
    group = given.pop("data", None) or given.get("data.name")
    if group is not None:
        check_choice("data", group, OURS)
    cfg = resolvers.composed("linear.yaml", [] if group is None else [f"data={group}"])
    for key, value in given.items():
        OmegaConf.update(cfg, key, value)
    return cfg
