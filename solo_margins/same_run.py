"""Which runs are the same: equal defining settings, and so equal ids.

Results, auto-resume and checkpoints all use this definition. It needs neither torch nor solo-learn.
"""

import hashlib
import json
import math
import os
from collections.abc import Mapping
from typing import Any

# Settings that may differ between two runs of the same experiment. Every other setting defines the
# run, including settings that do not exist yet: repeating a run is better than skipping one that
# was never made.
# Of the machine the number of devices counts, their kind does not; of a checkpoint its settings do,
# not its path; a run that reaches max_consecutive_skips has no result.
NAMES_AND_PLACES = (
    "name",
    "run_id",
    "result_id",
    "results",
    "skip_finished",
    "default_root_dir",
    "log_dir",
    "resume_from_checkpoint",
    "resume_with_changes",
    "replace_loaders",
    "pretrained_feature_extractor",
    "data.download",
)
OUTPUT = (
    "checkpoint",
    "auto_resume",
    "auto_umap",
    "debug_augmentations",
    "loggers",
    "lens",
    "log_every_n_steps",
    "wandb",
    "wandb_run_id",
    "enable_progress_bar",
    "enable_model_summary",
    "profiler",
)
MACHINE = (
    "accelerator",
    "strategy",
    "performance",
    "dali",
    "data.num_workers",
    "num_sanity_val_steps",
    "benchmark",
    "detect_anomaly",
    "numerics.max_consecutive_skips",
)
IGNORED_KEYS = frozenset((*NAMES_AND_PLACES, *OUTPUT, *MACHINE))
# Values that do not change a finished run; any other value defines it.
IGNORED_VALUES = {
    "data.on_error": "raise",
    "numerics.on_nonfinite": "stop",
    "method_kwargs.simulated_ranks": 1,
    "method_kwargs.negatives.mean": 0.7,
    "method_kwargs.negatives.width": 1.0,
    "normalize_features": False,
}
# Where images are stored. Data with a name are the same everywhere; other data are known by this.
IMAGE_LOCATIONS = frozenset({"data.train_path", "data.val_path", "data.dataset"})
UNNAMED_DATA = (None, "folder")

# For Lightning 1 is one batch, and 1.0 all of them.
ONE_IS_NOT_ALL = ("limit_train_batches", "limit_val_batches", "overfit_batches")

LARGEST_EXACT_INTEGER = 2**53  # of a float

# The setting that names what a probe is trained on.
BACKBONE = "pretrained_feature_extractor"
# Where a checkpoint holds the settings that it is compared by.
SETTINGS_IN_CHECKPOINT = "settings_of_run"
# The setting that says which checkpoint a run was continued from, where that of another run was.
# Nobody sets it: the run finds it out. It defines the run.
CONTINUED_FROM = "continued_from"
# The limits of a run, which may be raised when it is continued; -1 is no limit.
LENGTHS = ("max_epochs", "max_steps")
# A refusal names so many differing settings.
NAMED_CHANGES = 6


def defining_settings(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that define a run, each in one spelling.

    Absent and null settings are the same, and so are 1 and 1.0. Left out are `IGNORED_KEYS`,
    `IGNORED_VALUES`, and the folders of data with a name.

    Args:
        configuration: a resolved configuration as plain dictionaries and lists.

    Examples:
        >>> defining_settings({"seed": 1.0, "devices": [0, 1], "wandb": {"enabled": True},
        ...     "data": {"name": "cifar10", "train_path": "/x"}, "gradient_clip_val": None})
        {'seed': 1, 'devices': 2, 'data': {'name': 'cifar10'}}
    """
    ignored = IGNORED_KEYS
    if (configuration.get("data") or {}).get("name") not in UNNAMED_DATA:
        ignored = ignored | IMAGE_LOCATIONS
    settings = _normalized(configuration, "", ignored) or {}
    devices = settings.get("devices")
    # Only the number of devices counts: solo-learn scales learning rates by it.
    if isinstance(devices, list):
        settings["devices"] = len(devices)
    elif str(devices).isdecimal():
        settings["devices"] = int(str(devices))
    return settings


class OtherRun(ValueError):
    """A checkpoint was trained with other settings; the message is one sentence for the user."""


def are_the_same_run(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether two resolved configurations describe one run, which may be continued.

    Their names must be equal, too, and for a probe the checkpoint.
    """
    keys = ("name", "pretrained_feature_extractor")
    return all(one.get(key) == other.get(key) for key in keys) and (
        defining_settings(one) == defining_settings(other)
    )


def compared_settings(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings by which a run and a checkpoint to go on from are compared.

    Args:
        configuration: resolved, as plain dictionaries and lists.
    """
    settings = defining_settings(configuration)
    backbone = configuration.get(BACKBONE)
    if backbone is not None:
        # Its path does not define a probe, but a checkpoint holds the weights of one backbone.
        settings[BACKBONE] = os.path.abspath(backbone)
    return settings


def changed_settings(before: Any, now: Any, key: str = "") -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ, by their full names, each with its value before and now.

    Args:
        before: settings, as `defining_settings` returns them.
        now: other settings.
        key: the full name of both, where they are a part of a configuration.

    Examples:
        >>> changed_settings({"seed": 1, "optimizer": {"lr": 0.1}}, {"optimizer": {"lr": 0.2}})
        {'optimizer.lr': (0.1, 0.2), 'seed': (1, None)}
    """
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        before, now = dict(enumerate(before)), dict(enumerate(now))
    if isinstance(before, Mapping) and now is None:
        now = {}
    if isinstance(now, Mapping) and before is None:
        before = {}
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        changes: dict[str, tuple[Any, Any]] = {}
        for name in sorted(before.keys() | now.keys()):
            full_name = f"{key}.{name}" if key else str(name)
            changes.update(changed_settings(before.get(name), now.get(name), full_name))
        return changes
    return {} if before == now else {key: (before, now)}


def refuse_changes(checkpoint: object, changes: Mapping[str, tuple[Any, Any]]) -> None:
    """Raise `OtherRun` if a checkpoint was trained with other settings.

    Longer training is allowed.

    Args:
        checkpoint: how the error names it.
        changes: what `changed_settings` returns for the checkpoint and the run.
    """
    refused = [key for key, values in changes.items() if not _is_longer(key, *values)]
    if not refused:
        return
    named = [f"{key}={_shown(changes[key][0])}, now {_shown(changes[key][1])}" for key in refused]
    listed = "; ".join(named[:NAMED_CHANGES])
    if len(named) > NAMED_CHANGES:
        listed += f"; and {len(named) - NAMED_CHANGES} more"
    raise OtherRun(
        f"{checkpoint} was trained with other settings than this run ({listed}): use its settings, "
        "start without it, or set resume_with_changes=true, which is recorded as another run."
    )


def continuation(
    before: Mapping[str, Any], now: Mapping[str, Any], step: int
) -> dict[str, Any] | None:
    """Return what defines a run that is continued from a checkpoint, besides its own settings.

    That is None where the checkpoint is one of the same run. Otherwise it is the step of the
    checkpoint and its settings, as far as they differ, and, where that was continued from another
    one, the same of it.

    Args:
        before: the defining settings of the run that wrote the checkpoint.
        now: those of the run that goes on from it.
        step: of the checkpoint.

    Examples:
        >>> continuation({"max_epochs": 1, "seed": 5}, {"max_epochs": 2, "seed": 5}, step=11)
        {'step': 11, 'settings': {'max_epochs': 1}}
    """
    earlier = before.get(CONTINUED_FROM)
    changes = changes_of_run(before, now)
    if not changes:
        return earlier
    entry: dict[str, Any] = {"step": step}
    # Null settings are left out of what defines a run.
    entry["settings"] = {key: "null" if was is None else was for key, (was, _) in changes.items()}
    if earlier is not None:
        entry[CONTINUED_FROM] = earlier
    return entry


def changes_of_run(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return `changed_settings` of two runs, whatever each of them was continued from."""
    own, other = (
        {key: value for key, value in settings.items() if key != CONTINUED_FROM}
        for settings in (before, now)
    )
    return changed_settings(own, other)


def _is_longer(key: str, before: Any, now: Any) -> bool:
    """Tell whether a limit of a run was raised."""
    if key not in LENGTHS:
        return False
    limits = [math.inf if value in (None, -1) else value for value in (before, now)]
    return bool(limits[1] >= limits[0])


def _shown(value: Any) -> str:
    """Return a setting as an error names it, a long one cut off."""
    text = "null" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _normalized(value: Any, key: str, ignored: frozenset[str]) -> Any:
    """Return a value as JSON stores it, without ignored, null and empty settings."""
    if isinstance(value, Mapping):
        items = {str(name): (f"{key}.{name}" if key else str(name), value[name]) for name in value}
        settings = {
            name: _normalized(item, full_name, ignored)
            for name, (full_name, item) in items.items()
            if full_name not in ignored and item != IGNORED_VALUES.get(full_name)
        }
        return {name: item for name, item in settings.items() if item is not None} or None
    if isinstance(value, (list, tuple)):
        # No setting inside a list is ignored.
        return [_normalized(item, f"{key}[]", ignored) for item in value] or None
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        is_whole = value.is_integer() and abs(value) < LARGEST_EXACT_INTEGER
        return int(value) if is_whole else value
    if value == 1 and isinstance(value, int) and key in ONE_IS_NOT_ALL:
        return "1 batch"
    if value is None or isinstance(value, (bool, int)):
        return value
    return {".inf": "inf", "None": None}.get(str(value), str(value))


def run_id(kind: str, host: str, settings: Mapping[str, Any]) -> str:
    """Return the id of a run: equal settings have equal ids, in any order and on any machine.

    Args:
        kind: ``"pretrain"``, ``"linear"``, …
        host: the version of solo-learn; methods of the same name differ between versions.
        settings: what `defining_settings` returns.
    """
    described = json.dumps([kind, host, settings], sort_keys=True, default=str)
    return hashlib.sha256(described.encode()).hexdigest()[:16]
