"""Which vectors a method compares: neighbours from a queue, keys of other views, groups of images.

Plain functions of tensors, apart from solo-learn's classes that hold the queues.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor


class NeighbourQueue(Protocol):
    """A queue of vectors with labels, as solo-learn's NNCLR, NNBYOL and NNSiam have it."""

    queue_y: Any

    def find_nn(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return indexes in the queue and vectors of the nearest neighbours of ``z``."""

    def dequeue_and_enqueue(self, z: Tensor, y: Tensor) -> None:
        """Put vectors and their labels in the place of the oldest ones."""


def neighbours_then_enqueue(
    queue: NeighbourQueue, z1: Tensor, z2: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Look both views up in a queue, then put the first view into it.

    An image looked up afterwards would find itself.

    Args:
        queue: what solo-learn's method keeps.
        z1: (N, D) vectors of the first view.
        z2: (N, D) vectors of the second view.
        targets: (N,) labels.

    Returns:
        The neighbours of both views, (N, D) each, and the share of the first view's neighbours
        that have its labels.
    """
    indexes, neighbours1 = queue.find_nn(z1)
    _, neighbours2 = queue.find_nn(z2)
    accuracy = (targets == queue.queue_y[indexes]).float().mean()
    queue.dequeue_and_enqueue(z1, targets)
    return neighbours1, neighbours2, accuracy


def compared_with_neighbours(
    predictions: Sequence[Tensor], neighbours: Sequence[Tensor]
) -> list[tuple[Tensor, Tensor]]:
    """Return each of two views' predictions with the neighbours of the other view."""
    prediction1, prediction2 = predictions
    neighbours1, neighbours2 = neighbours
    return [(prediction1, neighbours2), (prediction2, neighbours1)]


def compared_with_queues(
    queries: Sequence[Tensor], keys: Sequence[Tensor], queues: Tensor
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return each of two views' queries with keys and queue of the other view.

    Args:
        queries: (N, D) of each view.
        keys: (N, D) of each view.
        queues: (2, D, K) keys of each view in batches before. The result has a copy of them, so
            that they may change before the gradient is computed.
    """
    query1, query2 = queries
    key1, key2 = keys
    queue1, queue2 = queues.clone()
    return [(query1, key2, queue2), (query2, key1, queue1)]


def changed_in_groups(
    views: Sequence[Tensor], size: int, change: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """Return views that were changed in random groups of images, the same groups for all views.

    Args:
        views: (N, D) vectors of each view; N is a multiple of ``size``.
        size: images of a group; each image is in one group.
        change: from the vectors of a group to as many others.
    """
    results = [torch.empty_like(view) for view in views]
    for group in torch.randperm(len(views[0])).view(-1, size):
        for view, result in zip(views, results, strict=True):
            result[group] = change(view[group]).type_as(result)
    return results
