"""When two runs are the same run: the settings that define one, and its id."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

IGNORED_KEYS = frozenset(
    {
        # names and places
        "name",
        "run_id",
        "result_id",
        "results",
        "skip_finished",
        "default_root_dir",
        "log_dir",
        "resume_from_checkpoint",
        "pretrained_feature_extractor",  # what it was trained with counts, not where it is
        "data.download",
        # what is written beside the results
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
        # the machine: the number of devices counts, their kind does not
        "accelerator",
        "strategy",
        "performance",
        "dali",
        "data.num_workers",
        "num_sanity_val_steps",
        "benchmark",
        "detect_anomaly",
        "numerics.max_consecutive_skips",  # says when to give up, which leaves no result
    }
)
"""Settings that may differ between two runs of the same experiment.

Every other setting defines the run, those that do not exist yet included: to run a cell twice is
better than to skip one that was never run.
"""

IGNORED_VALUES = {"data.on_error": "raise", "numerics.on_nonfinite": "stop"}
"""Values that change nothing in a run that is finished; any other one defines it."""

WHERE_IMAGES_ARE = frozenset({"data.train_path", "data.val_path", "data.dataset"})
"""Settings that say where named data are stored and how; they define unnamed data."""

UNNAMED_DATA = (None, "folder")
"""Values of ``data.name`` that do not say which images are meant."""

_WHOLE_NUMBERS_UP_TO = 2**53


def defining_settings(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that define a run, in one spelling.

    Absent and null settings are the same, as are 1 and 1.0. Settings of :data:`IGNORED_KEYS` are
    left out, values of :data:`IGNORED_VALUES`, and for data with a name the folders that hold
    it.

    Args:
        configuration: a resolved configuration as plain dictionaries and lists.

    Example:
        >>> defining_settings({"seed": 1.0, "devices": [0, 1], "wandb": {"enabled": True},
        ...     "data": {"name": "cifar10", "train_path": "/x"}, "gradient_clip_val": None})
        {'seed': 1, 'devices': 2, 'data': {'name': 'cifar10'}}
    """
    data = configuration.get("data") or {}
    left_out = IGNORED_KEYS
    if data.get("name") not in UNNAMED_DATA:
        left_out = IGNORED_KEYS | WHERE_IMAGES_ARE
    settings = _plain(configuration, "", left_out) or {}
    if "devices" in settings:
        # solo-learn scales learning rates by their number.
        settings["devices"] = _count(settings["devices"])
    return settings


def _plain(value: Any, key: str, left_out: frozenset[str]) -> Any:
    """Return a value as JSON knows it, without what is left out, null or empty."""
    if isinstance(value, Mapping):
        found = {}
        for name, item in value.items():
            inner = f"{key}.{name}" if key else str(name)
            plain = None if inner in left_out else _plain(item, inner, left_out)
            if plain is not None and plain == IGNORED_VALUES.get(inner):
                plain = None
            if plain is not None:
                found[str(name)] = plain
        return found or None
    if isinstance(value, (list, tuple)):
        # The key stays that of the list: no setting inside of one is left out.
        return [_plain(item, f"{key}[]", left_out) for item in value] or None
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        is_whole = value.is_integer() and abs(value) < _WHOLE_NUMBERS_UP_TO
        return int(value) if is_whole else value
    if value is None or isinstance(value, (bool, int)):
        return value
    text = str(value)
    return {".inf": "inf", "None": None}.get(text, text)


def _count(devices: Any) -> Any:
    if isinstance(devices, list):
        return len(devices)
    return int(devices) if str(devices).isdecimal() else devices


def run_id(kind: str, host: str, settings: Mapping[str, Any]) -> str:
    """Return the id of a run: equal settings have equal ids, in any order and on any machine.

    Args:
        kind: ``"pretrain"``, ``"linear"``, …
        host: the form of solo-learn; methods of the same name differ between its forms.
        settings: what :func:`defining_settings` returns.
    """
    described = json.dumps([kind, host, settings], sort_keys=True, default=str)
    return hashlib.sha256(described.encode()).hexdigest()[:16]
