"""Weighted kNN accuracy and recall@1 of a pretrained backbone, on any device.

    python -m solo_margins.knn pretrained_feature_extractor=<checkpoint> k=20

    pretrained_feature_extractor=…  a pretraining checkpoint, or the folder of its run
    k=20                            number of neighbours
    temperature=0.07                a neighbour votes with exp(cosine similarity / temperature)
    distance=cosine                 or euclidean, with votes of 1 / distance
    data=…                          images to classify: digits, cifar10, cifar100, stl10,
                                    tinyimagenet, imagenet, imagenet100, folder
    data.train_path=… data.val_path=…
    label_fraction=…                share of the training images of each class
    device=auto                     cpu, cuda, cuda:1, mps, …
    extraction_batch_size=256       views that the backbone sees at a time
    results=…                       a file that a line of JSON is added to

By default the images are those of the pretraining. Their size is always that of the pretraining.
docs/evaluation.md explains every setting.
"""

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional as F

from solo_margins.evaluation.features import Features
from solo_margins.evaluation.task import Task, load_task, parse
from solo_margins.losses.checks import POSITIVE, require_choice, require_count, require_number
from solo_margins.methods.online_knn import OnlineKNN

# Settings of the vote, which ``linear.yaml`` does not have.
VOTE = {"k": 20, "temperature": 0.07, "distance": "cosine"}
# Numbers of a matrix of similarities that are held at once.
LARGEST_MATRIX = 50_000_000


def knn_accuracy(
    train: Features,
    validation: Features,
    k: int = 20,
    temperature: float = 0.07,
    distance: str = "cosine",
) -> dict[str, float]:
    """Return ``acc1`` and ``acc5`` in percent of a weighted vote of the k nearest neighbours.

    Args:
        train: features that vote, of all passes.
        validation: features that are classified, of the first pass.
        k: number of neighbours.
        temperature: a neighbour votes with exp(cosine similarity / temperature).
        distance: ``"cosine"``, or ``"euclidean"`` with votes of 1 / distance.
    """
    check_vote(k, temperature, distance)
    classifier = OnlineKNN(k=k, distance=distance, temperature=temperature)
    classifier(
        train_features=train.values.flatten(0, 1),
        train_targets=train.labels.repeat(len(train.values)),
        test_features=validation.values[0],
        test_targets=validation.labels,
    )
    acc1, acc5 = classifier.compute()
    return {"acc1": float(acc1), "acc5": float(acc5)}


def recall_at_1(features: Features, distance: str = "cosine") -> float:
    """Return the percentage of images whose nearest other image has the same label.

    This is recall@1 of metric learning: each image of the first pass is compared with all others of
    the same features, and nothing is trained.

    Args:
        features: such as those of the validation images.
        distance: ``"cosine"`` or ``"euclidean"``.

    Examples:
        >>> values = torch.tensor([[[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]])
        >>> round(recall_at_1(Features(values, torch.tensor([0, 0, 1]))), 1)
        66.7
    """
    values, labels = features.values[0], features.labels
    if distance == "cosine":
        values = F.normalize(values)
    hits = 0
    rows = max(1, LARGEST_MATRIX // len(values))
    for images in torch.arange(len(values)).split(rows):
        if distance == "cosine":
            similarities = values[images] @ values.T
        else:
            similarities = -torch.cdist(values[images], values)
        # An image is not its own neighbour.
        similarities[torch.arange(len(images)), images] = -torch.inf
        nearest = similarities.argmax(dim=1)
        hits += int((labels[nearest] == labels[images]).sum())
    return 100 * hits / len(values)


def neighbour_figures(task: Task, **vote: Any) -> dict[str, float]:
    """Return ``acc1`` and ``acc5`` of the vote and ``recall_at_1`` of a task, in percent.

    Args:
        task: its features are extracted once.
        vote: ``k``, ``temperature`` and ``distance`` of `knn_accuracy`.
    """
    figures = knn_accuracy(task.centre_features, task.validation_features, **vote)
    recall = recall_at_1(task.validation_features, vote.get("distance", "cosine"))
    return {**figures, "recall_at_1": recall}


def check_vote(k: Any, temperature: Any, distance: Any) -> None:
    """Raise ``ValueError`` if a setting of the vote leaves its range."""
    require_count("k", k)
    require_number("temperature", temperature, POSITIVE)
    require_choice("distance", distance, ("cosine", "euclidean"))


def knn(arguments: Sequence[str], progress: bool = True) -> dict[str, float]:
    """Return and print kNN accuracy and recall@1 of the checkpoint that the arguments name.

    Args:
        arguments: ``key=value`` each.
        progress: whether there are progress bars.
    """
    cfg, options = parse(arguments, VOTE)
    vote = {name: options.pop(name) for name in VOTE}
    check_vote(**vote)
    began = time.perf_counter()
    task = load_task(cfg, **options, progress=progress)
    figures = neighbour_figures(task, **vote)
    print(
        f"kNN (k={vote['k']}, temperature={vote['temperature']}, {vote['distance']}): "
        f"acc1 = {figures['acc1']:.2f} %, acc5 = {figures['acc5']:.2f} %, "
        f"recall_at_1 = {figures['recall_at_1']:.2f} %"
    )
    named = {
        "knn_acc1": figures["acc1"],
        "knn_acc5": figures["acc5"],
        "recall_at_1": figures["recall_at_1"],
    }
    task.record("knn", vote, named, time.perf_counter() - began)
    return figures
