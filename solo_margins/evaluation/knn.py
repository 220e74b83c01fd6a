"""Weighted kNN accuracy of a pretrained backbone, on any device.

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

By default the images are those of the pretraining. Their size is always that of the pretraining.
docs/evaluation.md explains every setting.
"""

from collections.abc import Sequence
from typing import Any

from solo_margins.evaluation.features import Features
from solo_margins.evaluation.task import load_task, parse
from solo_margins.losses.checks import POSITIVE, require_choice, require_count, require_number
from solo_margins.methods.online_knn import OnlineKNN

# Settings of the vote, which ``linear.yaml`` does not have.
VOTE = {"k": 20, "temperature": 0.07, "distance": "cosine"}


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


def check_vote(k: Any, temperature: Any, distance: Any) -> None:
    """Raise ``ValueError`` if a setting of the vote leaves its range."""
    require_count("k", k)
    require_number("temperature", temperature, POSITIVE)
    require_choice("distance", distance, ("cosine", "euclidean"))


def knn(arguments: Sequence[str], progress: bool = True) -> dict[str, float]:
    """Return and print the kNN accuracy of the checkpoint that ``key=value`` arguments name."""
    cfg, options = parse(arguments, VOTE)
    vote = {name: options.pop(name) for name in VOTE}
    check_vote(**vote)
    task = load_task(cfg, **options, progress=progress)
    accuracies = knn_accuracy(task.centre_features, task.validation_features, **vote)
    print(
        f"kNN (k={vote['k']}, temperature={vote['temperature']}, {vote['distance']}): "
        f"acc1 = {accuracies['acc1']:.2f} %, acc5 = {accuracies['acc5']:.2f} %"
    )
    return accuracies
