"""Accuracies for any number of classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from solo.utils import metrics as release
from torch import Tensor


def accuracy_at_k(outputs: Tensor, targets: Tensor, top_k: Sequence[int] = (1, 5)) -> Any:
    """Return the accuracies in percent at the given ranks, at most at the number of classes."""
    ranks = tuple(min(k, outputs.size(1)) for k in top_k)
    return release.accuracy_at_k(outputs, targets, ranks)
