"""Accuracies for any number of classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from solo.utils import metrics as release
from torch import Tensor

from solo_margins.host.repairs.accuracy_with_few_classes_or_labels import accuracy_of_labelled


def accuracy_at_k(outputs: Tensor, targets: Tensor, top_k: Sequence[int] = (1, 5)) -> Any:
    """Return the accuracies in percent at the given ranks, at most at the number of classes."""
    return accuracy_of_labelled(release.accuracy_at_k, outputs, targets, top_k)
