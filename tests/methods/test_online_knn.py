"""Online kNN against a vote counted by hand."""

import math

import pytest
import torch

from solo_margins.methods.online_knn import OnlineKNN


def naive_knn(train, train_labels, test, test_labels, k, distance, temperature=0.07, eps=1e-5):
    hits = [0, 0]
    for features, label in zip(test, test_labels, strict=True):
        scored = []
        for other, other_label in zip(train, train_labels, strict=True):
            if other_label < 0:
                continue
            if distance == "cosine":
                cos = float(features @ other / (features.norm() * other.norm()))
                scored.append((cos, math.exp((cos - 1) / temperature), int(other_label)))
            else:
                away = float((features - other).norm())
                scored.append((-away, 1 / (away + eps), int(other_label)))
        votes = {}
        for _, weight, other_label in sorted(scored, reverse=True)[:k]:
            votes[other_label] = votes.get(other_label, 0) + weight
        ranking = sorted(votes, key=votes.get, reverse=True)
        hits[0] += ranking[0] == int(label)
        hits[1] += int(label) in ranking[:5]
    return [100 * hit / len(test_labels) for hit in hits]


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("matrix_size", [7, 10**6])
def test_accuracy_is_that_of_the_vote(distance, matrix_size, device):
    torch.manual_seed(0)
    train, test = torch.randn(40, 4).to(device), torch.randn(15, 4).to(device)
    # Class 4 is missing from the validation labels, and ten images have no label.
    train_labels = torch.arange(40, device=device) % 10 - 5
    test_labels = torch.tensor([0, 1, 3] * 5, device=device)
    train_labels[train_labels < 0] = -1
    knn = OnlineKNN(k=6, distance=distance, largest_matrix=matrix_size)
    for part in range(4):
        rows = slice(10 * part, 10 * part + 10)
        assert knn(train_features=train[rows], train_targets=train_labels[rows]) is None
    knn(test_features=test, test_targets=test_labels)
    top1, top5 = knn.compute()
    expected = naive_knn(train, train_labels, test, test_labels, 6, distance)
    assert top1 == pytest.approx(expected[0])
    # Classes without a vote fill the ranks up to the fifth.
    assert top5 >= expected[1]
    assert not knn.train_features, "the features of an epoch must not vote in the next"


@pytest.mark.parametrize("temperature", [0.001, 0.01])
def test_cold_votes_are_those_of_the_nearest(temperature, device):
    """exp(cos / T) is more than float32 holds for all of these neighbours."""
    torch.manual_seed(0)
    centres = torch.nn.functional.normalize(torch.randn(5, 8)).to(device)
    labels = torch.arange(100, device=device) % 5
    train = centres[labels] + 0.05 * torch.randn(100, 8).to(device)
    # Every seventh image has a label that its neighbours have not.
    labels = torch.where(torch.arange(100, device=device) % 7 == 0, (labels + 1) % 5, labels)
    nearest = torch.arange(0, 100, 2, device=device)
    test = train[nearest] + 1e-3 * torch.randn(50, 8).to(device)
    knn = OnlineKNN(k=80, temperature=temperature)
    knn(train_features=train, train_targets=labels)
    knn(test_features=test, test_targets=labels[nearest])
    expected = naive_knn(train, labels, test, labels[nearest], 80, "cosine", temperature)
    assert expected[0] > 80
    assert knn.compute()[0] == pytest.approx(expected[0])


def test_without_features_there_is_no_accuracy():
    knn = OnlineKNN(k=3)
    knn(test_features=torch.randn(2, 3), test_targets=torch.tensor([0, 1]))
    assert tuple(knn.compute()) == (-1, -1)


def test_images_without_a_label_neither_vote_nor_count():
    north, east = [0.0, 1.0], [1.0, 0.0]
    knn = OnlineKNN(k=3)
    features = torch.tensor([north, north, east])
    knn(train_features=features, train_targets=torch.tensor([-1, -1, 1]))
    knn(test_features=torch.tensor([north, north]), test_targets=torch.tensor([1, -1]))
    assert knn.compute()[0] == pytest.approx(100)


def test_an_unknown_distance_is_refused():
    with pytest.raises(ValueError, match="distance"):
        OnlineKNN(distance="manhattan")
