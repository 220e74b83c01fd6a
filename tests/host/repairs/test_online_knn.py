"""The online kNN with today's torchmetrics, and with any set of labels."""

import pytest
import torch
from solo.utils.knn import WeightedKNNClassifier

NORTH, EAST, SOUTH = [0.0, 1.0], [1.0, 0.0], [0.0, -1.0]


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_neighbours_vote_for_classes_that_are_not_validated(distance):
    knn = WeightedKNNClassifier(k=1, distance_fx=distance)
    knn(train_features=torch.tensor([NORTH, EAST]), train_targets=torch.tensor([0, 4]))
    knn(train_features=torch.tensor([SOUTH]), train_targets=torch.tensor([2]))
    # Classes 0 and 2 alone are validated, and one of three images lies near to class 4.
    near = torch.tensor([[0.1, 1.0], [0.1, -1.0], [1.0, 0.1]])
    knn(test_features=near, test_targets=torch.tensor([0, 2, 0]))
    top1, _ = knn.compute()
    assert top1 == pytest.approx(200 / 3)


def test_a_call_collects_and_compute_forgets():
    knn = WeightedKNNClassifier(k=1)
    for _ in range(2):
        assert knn(train_features=torch.tensor([NORTH]), train_targets=torch.tensor([0])) is None
    assert len(knn.train_features) == 2
    knn(test_features=torch.tensor([NORTH]), test_targets=torch.tensor([0]))
    assert knn.compute()[0] == pytest.approx(100)
    assert not knn.train_features


def test_images_without_a_label_neither_vote_nor_count():
    knn = WeightedKNNClassifier(k=3)
    features = torch.tensor([NORTH, NORTH, EAST])
    knn(train_features=features, train_targets=torch.tensor([-1, -1, 1]))
    knn(test_features=torch.tensor([NORTH, NORTH]), test_targets=torch.tensor([1, -1]))
    assert knn.compute()[0] == pytest.approx(100)


def test_without_features_there_is_no_accuracy():
    assert tuple(WeightedKNNClassifier().compute()) == (-1, -1)
