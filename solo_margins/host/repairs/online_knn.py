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


@torch.no_grad()
def weighted_knn_accuracy(
    train_features: Tensor,
    train_targets: Tensor,
    test_features: Tensor,
    test_targets: Tensor,
    k: int = 20,
    temperature: float = 0.07,
    distance: str = "cosine",
    epsilon: float = 1e-5,
    max_matrix_size: int = 5_000_000,
) -> tuple[float, float]:
    """Return top-1 and top-5 accuracy in percent of a similarity-weighted vote of k neighbours.

    Neighbours vote with ``exp(cos / temperature)`` (``distance="cosine"``) or with
    ``1 / (distance + epsilon)`` (``"euclidean"``). Images without a label (negative targets)
    neither vote nor count. Returns (-1, -1) when nothing is left to compare.
    """
    labelled = train_targets >= 0
    train_features, train_targets = train_features[labelled], train_targets[labelled]
    labelled = test_targets >= 0
    test_features, test_targets = test_features[labelled], test_targets[labelled]
    if len(train_targets) == 0 or len(test_targets) == 0:
        return -1.0, -1.0
    if distance not in ("cosine", "euclidean"):
        raise ValueError(f"distance must be 'cosine' or 'euclidean', got {distance!r}.")
    if distance == "cosine":
        train_features, test_features = F.normalize(train_features), F.normalize(test_features)

    # A class may be missing on either side.
    num_classes = int(max(train_targets.max(), test_targets.max())) + 1
    k = min(k, len(train_targets))
    rows = max(1, max_matrix_size // len(train_targets))
    hits = torch.zeros(2)
    for features, targets in zip(test_features.split(rows), test_targets.split(rows), strict=True):
        if distance == "cosine":
            similarities, neighbours = (features @ train_features.T).topk(k)
            weights = (similarities / temperature).exp()
        else:
            distances, neighbours = torch.cdist(features, train_features).topk(k, largest=False)
            weights = 1 / (distances + epsilon)
        votes = weights.new_zeros(len(targets), num_classes)
        votes.scatter_add_(1, train_targets[neighbours], weights)
        ranking = votes.argsort(dim=1, descending=True, stable=True)
        correct = ranking == targets[:, None]
        hits += torch.tensor([correct[:, :1].sum().item(), correct[:, :5].sum().item()])
    top1, top5 = (100 * hits / len(test_targets)).tolist()
    return top1, top5


class UpdateOnlyMetric(Metric):
    """A metric whose call only collects, as ``compute_on_step=False`` used to ask for."""

    full_state_update = False

    def __init__(self, compute_on_step: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> None:
        """Collect a batch."""
        self.update(*args, **kwargs)


def compute(self: Any) -> tuple[float, float]:
    """Return top-1 and top-5 accuracy of the collected features and forget them."""
    if not self.train_features or not self.test_features:
        return -1.0, -1.0
    accuracies = weighted_knn_accuracy(
        torch.cat(list(self.train_features)),
        torch.cat(list(self.train_targets)),
        torch.cat(list(self.test_features)),
        torch.cat(list(self.test_targets)),
        k=self.k,
        temperature=self.T,
        distance=self.distance_fx,
        epsilon=self.epsilon,
        max_matrix_size=self.max_distance_matrix_size,
    )
    self.reset()
    return accuracies


CHANGES = (
    Replace("utils.knn", "WeightedKNNClassifier.__bases__", (UpdateOnlyMetric,)),
    Replace("utils.knn", "WeightedKNNClassifier.compute", compute),
)
