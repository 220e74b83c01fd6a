"""Weighted kNN accuracy of a pretrained backbone, on any device.

    python -m solo_margins.evaluation.knn pretrained_feature_extractor=<checkpoint> k=20

Data are those of the pretraining unless ``data=…`` names others; the image size always is.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from solo_margins import host
from solo_margins.cli import run_cli, user_errors
from solo_margins.evaluation.command import Own, parse
from solo_margins.evaluation.features import Features
from solo_margins.evaluation.task import load_task
from solo_margins.training.checked_config import check_choice

OWN: Own = {"k": (int, 20), "temperature": (float, 0.07), "distance": (str, "cosine")}
"""Settings of the command line besides those of ``linear.yaml``: type and default."""


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
    _check(k, temperature, distance)
    classifier = host.WeightedKNNClassifier(k=k, T=temperature, distance_fx=distance)
    classifier(
        train_features=train.values.flatten(0, 1),
        train_targets=train.labels.repeat(len(train.values)),
        test_features=validation.values[0],
        test_targets=validation.labels,
    )
    acc1, acc5 = classifier.compute()
    return {"acc1": float(acc1), "acc5": float(acc5)}


def _check(k: int, temperature: float, distance: str) -> None:
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ValueError(f"k must be a whole number above 0, got {k!r}.")
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature!r}.")
    check_choice("distance", distance, ("cosine", "euclidean"))


def knn(arguments: Sequence[str], progress: bool = True) -> dict[str, float]:
    """Return and print the kNN accuracy of the checkpoint that ``key=value`` arguments name."""
    with user_errors():
        cfg, own = parse(arguments, OWN)
        vote = {name: own[name] for name in OWN}
        _check(**vote)
        task = load_task(cfg)
        how = {"batch_size": own["extraction_batch_size"], "device": own["device"]}
        train = task.features(task.train, title="training", progress=progress, **how)
        validation = task.features(task.validation, title="validation", progress=progress, **how)
        found = knn_accuracy(train, validation, **vote)
    print(
        f"kNN (k={own['k']}, temperature={own['temperature']}, {own['distance']}): "
        f"acc1 = {found['acc1']:.2f} %, acc5 = {found['acc5']:.2f} %"
    )
    return found


if __name__ == "__main__":
    run_cli(knn, sys.argv[1:])
