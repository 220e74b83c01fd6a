"""The online kNN: neighbours among the training images of an epoch vote for validation images."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import Metric

# Numbers of a matrix of distances that are held at once.
LARGEST_MATRIX = 5_000_000


class OnlineKNN(Metric):
    """Collects features and labels, and computes the accuracy of their nearest neighbours.

    It takes the place of solo-learn's ``WeightedKNNClassifier``, which solo-learn's steps feed.
    That one fails with torchmetrics 1.0 and later (``Unexpected keyword arguments:
    compute_on_step``) and where a class is missing among the validation labels, whose number it
    takes for the number of classes; its votes overflow at temperatures below 0.0113.

    The k nearest neighbours vote with ``exp(cos / temperature)``, up to a factor, or with
    ``1 / (distance + epsilon)``. Images without a label (negative targets) neither vote nor count.

    Args:
        k: number of neighbours.
        distance: ``"cosine"`` or ``"euclidean"``.
        temperature: of votes by cosine.
        epsilon: added to Euclidean distances.
        largest_matrix: numbers of a matrix of distances that are held at once.
    """

    full_state_update = False

    train_features: list[Tensor]
    train_targets: list[Tensor]
    test_features: list[Tensor]
    test_targets: list[Tensor]

    def __init__(
        self,
        k: int = 20,
        distance: str = "cosine",
        temperature: float = 0.07,
        epsilon: float = 1e-5,
        largest_matrix: int = LARGEST_MATRIX,
    ) -> None:
        super().__init__()
        if distance not in ("cosine", "euclidean"):
            raise ValueError(f"distance must be 'cosine' or 'euclidean', got {distance!r}.")
        self.k = k
        self.distance = distance
        self.temperature = temperature
        self.epsilon = epsilon
        self.largest_matrix = largest_matrix
        for name in ("train_features", "train_targets", "test_features", "test_targets"):
            # Lists of batches, of all ranks when it is computed.
            self.add_state(name, default=[], persistent=False)

    def forward(self, *args: Any, **kwargs: Any) -> None:
        """Collect a batch; nothing is computed before the epoch ends."""
        self.update(*args, **kwargs)

    def update(
        self,
        train_features: Tensor | None = None,
        train_targets: Tensor | None = None,
        test_features: Tensor | None = None,
        test_targets: Tensor | None = None,
    ) -> None:
        """Collect (N, D) features and (N,) labels of training or of validation images."""
        if train_features is not None and train_targets is not None:
            self.train_features.append(train_features.detach())
            self.train_targets.append(train_targets.detach())
        if test_features is not None and test_targets is not None:
            self.test_features.append(test_features.detach())
            self.test_targets.append(test_targets.detach())

    @torch.no_grad()
    def compute(self) -> tuple[float, float]:
        """Return top-1 and top-5 accuracy in percent of the collected features and forget them.

        Returns (-1, -1) when there is nothing to compare.
        """
        if len(self.train_features) == 0 or len(self.test_features) == 0:
            return -1.0, -1.0
        train_features, train_targets = labelled(self.train_features, self.train_targets)
        test_features, test_targets = labelled(self.test_features, self.test_targets)
        self.reset()
        if len(train_targets) == 0 or len(test_targets) == 0:
            return -1.0, -1.0
        if self.distance == "cosine":
            train_features, test_features = F.normalize(train_features), F.normalize(test_features)

        # A class may be missing on either side.
        num_classes = int(max(train_targets.max(), test_targets.max())) + 1
        rows = max(1, self.largest_matrix // len(train_targets))
        hits = torch.zeros(2)
        parts = zip(test_features.split(rows), test_targets.split(rows), strict=True)
        for features, targets in parts:
            weights, neighbours = self._votes(features, train_features)
            votes = weights.new_zeros(len(targets), num_classes)
            votes.scatter_add_(1, train_targets[neighbours], weights)
            ranking = votes.argsort(dim=1, descending=True, stable=True)
            correct = ranking == targets[:, None]
            hits += torch.tensor([correct[:, :1].sum().item(), correct[:, :5].sum().item()])
        top1, top5 = (100 * hits / len(test_targets)).tolist()
        return top1, top5

    def _votes(self, features: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        """Return how much each of the k nearest neighbours counts, and which they are."""
        k = min(self.k, len(others))
        if self.distance == "cosine":
            similarities, neighbours = (features @ others.T).topk(k)
            # The nearest one votes with 1: exp(1 / T) overflows float32 below T = 0.0113.
            return ((similarities - similarities[:, :1]) / self.temperature).exp(), neighbours
        distances, neighbours = torch.cdist(features, others).topk(k, largest=False)
        return 1 / (distances + self.epsilon), neighbours


def labelled(features: Any, targets: Any) -> tuple[Tensor, Tensor]:
    """Return the collected features that have a label, and the labels."""
    labels = torch.cat(list(targets))
    return torch.cat(list(features))[labels >= 0], labels[labels >= 0]
