"""Weighted kNN accuracy of a pretrained backbone, on any device.

    python -m solo_margins.runner.knn pretrained_feature_extractor=<checkpoint> k=20

Data and image size are those of the pretraining unless ``data.*`` says otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor
from torch.utils.data import DataLoader, Subset

from solo_margins import host
from solo_margins.host import named_data, recipe
from solo_margins.runner import settings
from solo_margins.runner.checkpoints import (
    fill_from_pretraining,
    find_checkpoint,
    pretrained_backbone,
    pretraining_args,
)
from solo_margins.runner.data import classification_loaders
from solo_margins.runner.program import explained, run_as_program

SETTINGS: dict[str, Any] = {
    "pretrained_feature_extractor": None,
    "backbone.name": None,
    "pretrain_method": None,
    "data.name": None,
    "data.dataset": None,
    "data.train_path": None,
    "data.val_path": None,
    "data.format": None,
    "data.unlabelled_folder": None,
    "data.num_workers": 0,
    "data.augmentations.crop_size": None,
    "optimizer.batch_size": 256,
    "k": 20,
    "temperature": 0.07,
    "distance": "cosine",
    "device": "auto",
}
"""Every setting of the command line, with its default."""

NUMBERS: dict[str, type[int] | type[float]] = {
    "data.num_workers": int,
    "data.augmentations.crop_size": int,
    "optimizer.batch_size": int,
    "k": int,
    "temperature": float,
}


def knn_accuracy(
    backbone: Any,
    train_loader: Any,
    val_loader: Any,
    k: int = 20,
    temperature: float = 0.07,
    device: str | torch.device = "auto",
    distance: str = "cosine",
) -> dict[str, float]:
    """Return ``acc1`` and ``acc5`` in percent of a weighted vote of the k nearest neighbours.

    Args:
        backbone: maps a batch of images (N, 3, H, W) to features (N, D).
        train_loader: batches (images, labels) that vote.
        val_loader: batches (images, labels) that are classified.
        k: number of neighbours.
        temperature: a neighbour votes with exp(cosine similarity / temperature).
        device: where features are computed; ``"auto"`` takes a GPU if there is one.
        distance: ``"cosine"``, or ``"euclidean"`` with votes of 1 / distance.
    """
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ValueError(f"k must be a whole number above 0, got {k!r}.")
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature!r}.")
    settings.check_choice("distance", distance, ("cosine", "euclidean"))
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    classifier = host.WeightedKNNClassifier(k=k, T=temperature, distance_fx=distance)
    train_features, train_targets = extract_features(backbone, train_loader, device)
    test_features, test_targets = extract_features(backbone, val_loader, device)
    classifier(
        train_features=train_features,
        train_targets=train_targets,
        test_features=test_features,
        test_targets=test_targets,
    )
    acc1, acc5 = classifier.compute()
    return {"acc1": float(acc1), "acc5": float(acc5)}


@torch.no_grad()
def extract_features(backbone: Any, loader: Any, device: Any) -> tuple[Tensor, Tensor]:
    """Return the features (N, D) and labels (N,) of all images of a loader, on the CPU."""
    was_training = backbone.training
    backbone.eval().to(device)
    features, labels = [], []
    for images, targets in loader:
        features.append(backbone(images.to(device)).float().cpu())
        labels.append(targets.cpu())
    backbone.train(was_training)
    return torch.cat(features), torch.cat(labels)


def knn(arguments: Sequence[str]) -> dict[str, float]:
    """Return and print the kNN accuracy of the checkpoint that ``key=value`` arguments name."""
    with explained():
        cfg = _parse(arguments)
        checkpoint = find_checkpoint(cfg.pretrained_feature_extractor)
        args = pretraining_args(checkpoint)
        fill_from_pretraining(cfg, args)
        named_data.locate(cfg, pretraining=False)
        settings.require(cfg, ["backbone.name", "data.dataset"])
        settings.check_choice("data.dataset", cfg.data.dataset, recipe.NATIVE_SIZE)
        settings.check_paths(cfg, "data.train_path", "data.val_path")
        settings.complete(cfg)
        recipe.remember(cfg)
        backbone = pretrained_backbone(cfg, checkpoint, args)
        train_loader, val_loader = _loaders_without_augmentation(cfg)
        found = knn_accuracy(
            backbone, train_loader, val_loader, cfg.k, cfg.temperature, cfg.device, cfg.distance
        )
    print(
        f"kNN (k={cfg.k}, temperature={cfg.temperature}, {cfg.distance}): "
        f"acc1 = {found['acc1']:.2f} %, acc5 = {found['acc5']:.2f} %"
    )
    return found


def _parse(arguments: Sequence[str]) -> DictConfig:
    cfg = OmegaConf.create({})
    for key, default in SETTINGS.items():
        OmegaConf.update(cfg, key, default, force_add=True)
    for argument in arguments:
        key, is_setting, value = argument.partition("=")
        if not is_setting or key not in SETTINGS:
            raise ValueError(
                f"{argument!r} is no setting of the form key=value: "
                f"the keys are {', '.join(SETTINGS)}."
            )
        OmegaConf.update(cfg, key, _number(key, value) if key in NUMBERS else value)
    settings.require(cfg, ["pretrained_feature_extractor"])
    return cfg


def _number(key: str, text: str) -> int | float:
    kind = NUMBERS[key]
    try:
        return kind(text)
    except ValueError:
        wanted = "a whole number" if kind is int else "a number"
        raise ValueError(f"{key} must be {wanted}, got {text!r}.") from None


def _loaders_without_augmentation(cfg: DictConfig) -> tuple[Any, Any]:
    """Return all training and validation images, in order and as the validation shows them."""
    _, as_in_validation = host.prepare_classification_transforms(cfg.data.dataset)
    train_loader, val_loader = classification_loaders(cfg)
    images = train_loader.dataset
    while isinstance(images, Subset):
        images = images.dataset
    images.transform = as_in_validation
    everything = DataLoader(
        train_loader.dataset,
        batch_size=cfg.optimizer.batch_size,
        num_workers=cfg.data.num_workers,
    )
    return everything, val_loader


if __name__ == "__main__":
    run_as_program(knn, sys.argv[1:])
