"""Names of tests that are run with several margins."""

import dataclasses

import torch

from solo_margins.losses import Margins


def named(value):
    """Return the settings that differ from their defaults, for ``ids=`` of parametrized tests."""
    if not isinstance(value, Margins):
        return str(value)
    words = []
    for field in dataclasses.fields(value):
        setting = getattr(value, field.name)
        if isinstance(setting, torch.Tensor):
            words.append(f"{field.name} by row")
        elif callable(setting):
            words.append(field.name)
        elif setting != field.default:
            words.append(f"{field.name}={setting}")
    return " ".join(words) or "no margins"
