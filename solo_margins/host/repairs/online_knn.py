"""The online kNN fails with today's torchmetrics (`Unexpected keyword arguments: compute_on_step`).
It fails with an index error when a class is missing among the validation labels, whose number it
takes for the number of classes. Images without a label vote.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import Metric

from solo_margins.host.changes import Replace


class UpdateOnlyMetric(Metric):
    """A metric whose call only collects, as ``compute_on_step=False`` used to ask for."""

    full_state_update = False

    def __init__(self, compute_on_step: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> None:
        """Collect a batch."""
        self.update(*args, **kwargs)


def labelled(features: Any, targets: Any) -> tuple[Tensor, Tensor]:
    """Return the collected features that have a label, and the labels."""
    labels = torch.cat(list(targets))
    return torch.cat(list(features))[labels >= 0], labels[labels >= 0]


def compute(self: Any) -> tuple[float, float]:
    """Return top-1 and top-5 accuracy in percent of the collected features and forget them.

    The k nearest neighbours vote with ``exp(cos / T)``, up to a factor (``distance_fx="cosine"``),
    or with ``1 / (distance + epsilon)`` (``"euclidean"``). Images without a label (negative
    targets)
    neither vote nor count. Returns (-1, -1) when there is nothing to compare.
    """
    if not self.train_features or not self.test_features:
        return -1.0, -1.0
    train_features, train_targets = labelled(self.train_features, self.train_targets)
    test_features, test_targets = labelled(self.test_features, self.test_targets)
    self.reset()
    if len(train_targets) == 0 or len(test_targets) == 0:
        return -1.0, -1.0
    if self.distance_fx not in ("cosine", "euclidean"):
        raise ValueError(f"distance must be 'cosine' or 'euclidean', got {self.distance_fx!r}.")
    is_cosine = self.distance_fx == "cosine"
    if is_cosine:
        train_features, test_features = F.normalize(train_features), F.normalize(test_features)

    # A class may be missing on either side.
    num_classes = int(max(train_targets.max(), test_targets.max())) + 1
    k = min(self.k, len(train_targets))
    rows = max(1, self.max_distance_matrix_size // len(train_targets))
    hits = torch.zeros(2)
    for features, targets in zip(test_features.split(rows), test_targets.split(rows), strict=True):
        if is_cosine:
            similarities, neighbours = (features @ train_features.T).topk(k)
            # The nearest one votes with 1: exp(1 / T) overflows float32 below T = 0.0113.
            weights = ((similarities - similarities[:, :1]) / self.T).exp()
        else:
            distances, neighbours = torch.cdist(features, train_features).topk(k, largest=False)
            weights = 1 / (distances + self.epsilon)
        votes = weights.new_zeros(len(targets), num_classes)
        votes.scatter_add_(1, train_targets[neighbours], weights)
        ranking = votes.argsort(dim=1, descending=True, stable=True)
        correct = ranking == targets[:, None]
        hits += torch.tensor([correct[:, :1].sum().item(), correct[:, :5].sum().item()])
    top1, top5 = (100 * hits / len(test_targets)).tolist()
    return top1, top5


CHANGES = (
    Replace("utils.knn", "WeightedKNNClassifier.__bases__", (UpdateOnlyMetric,)),
    Replace("utils.knn", "WeightedKNNClassifier.compute", compute),
)
