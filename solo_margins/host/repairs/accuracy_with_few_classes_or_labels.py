"""Accuracies of fewer than 5 classes fail in `topk`. Images without a label count as wrong."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from solo_margins.host.changes import Wrap


def accuracy_of_labelled(
    original: Callable[..., Any], outputs: Tensor, targets: Tensor, top_k: Sequence[int] = (1, 5)
) -> Any:
    """Return the accuracies over labelled images, 0 when there is none.

    Args:
        original: solo-learn's own function of the other arguments.
        outputs: logits (N, classes).
        targets: labels (N,).
        top_k: ranks, which are lowered to the number of classes.
    """
    of_all = original(outputs, targets, tuple(min(k, outputs.size(1)) for k in top_k))
    # No output is called -1, so unlabelled images add no hits; asking for them would wait.
    labelled = (targets != -1).sum().clamp(min=1)
    return [accuracy * (len(targets) / labelled) for accuracy in of_all]


CHANGES = (Wrap("utils.metrics", "accuracy_at_k", accuracy_of_labelled, everywhere=True),)
