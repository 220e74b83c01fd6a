"""Data sets of single images: files in folders, and torchvision's CIFAR and STL-10."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.error import URLError

import torch
from torch.utils.data import Dataset, Subset

from solo_margins.data import class_folders
from solo_margins.data.class_folders import UnreadableImage, log, read_image
from solo_margins.data.dataset_paths import NAMED

# Unreadable images in a row after which on_error="skip" gives up.
ATTEMPTS = 100

# File and label of every image; the label −1 means that there is none.
Samples = list[tuple[str, int]]


def labelled_files(
    root: str | Path, classes: Sequence[str] | None = None, unlabelled: Path | None = None
) -> Samples:
    """Return all images in class folders.

    Args:
        root: folder of class folders.
        classes: names of the class folders in the order of their labels; None for all folders of
            the root that hold images, sorted.
        unlabelled: a folder whose images follow with the label −1.
    """
    if classes is None:
        classes = class_folders.classes_in(root, unlabelled)
    folders = [(os.path.join(root, name), label) for label, name in enumerate(classes)]
    if unlabelled is not None:
        folders.append((str(unlabelled), -1))
    # In torchvision's order; validation may lack a class.
    return [
        (file, label)
        for folder, label in folders
        if os.path.isdir(folder)
        for file in sorted(class_folders.images_below(folder), key=os.path.split)
    ]


def unlabelled_files(root: str | Path) -> Samples:
    """Return the images directly inside a folder in the order of their names, with label −1."""
    return [(os.path.join(root, name), -1) for name in class_folders.images_in(root)]


class ImageFiles(Dataset[Any]):
    """Image files with their labels.

    Args:
        samples: file and label of every image.
        transform: applied to every image.
        on_error: ``"raise"``, or ``"skip"`` to return the next readable image in the place of one
            that cannot be read.
    """

    def __init__(self, samples: Samples, transform: Any = None, on_error: str = "raise") -> None:
        self.samples = samples
        self.targets = [label for _, label in samples]
        self.transform = transform
        self.reported = 0  # skipped images in the last report
        # In memory that all workers share: each skipped image is logged once, and the main process
        # knows all of them.
        self.is_skipped = None
        if on_error == "skip":
            self.is_skipped = torch.zeros(len(samples), dtype=torch.bool).share_memory_()

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        if self.is_skipped is not None:
            return self._next_readable(index, self.is_skipped)
        try:
            return self._read(index)
        except UnreadableImage as error:
            raise UnreadableImage(
                f"{str(error).rstrip('.')}; repair or remove it, or use data.on_error=skip to take "
                "another image in its place."
            ) from None

    def _read(self, index: int) -> tuple[Any, int]:
        file, label = self.samples[index]
        image = read_image(file)
        return (image if self.transform is None else self.transform(image)), label

    def _next_readable(self, index: int, is_skipped: torch.Tensor) -> tuple[Any, int]:
        file, _ = self.samples[index]
        attempts = min(ATTEMPTS, len(self))
        for attempt in range(attempts):
            candidate = (index + attempt) % len(self)
            try:
                return self._read(candidate)
            except UnreadableImage as error:
                if not is_skipped[candidate]:
                    is_skipped[candidate] = True
                    log.warning("Skipped: %s", error)
        raise UnreadableImage(
            f"None of {attempts} images in a row can be read, the first is {file}: "
            "data.on_error=skip is for single damaged images."
        )

    def skipped(self) -> list[str]:
        """Return the files that were skipped."""
        if self.is_skipped is None:
            return []
        return [self.samples[index][0] for index in self.is_skipped.nonzero().flatten().tolist()]


class Indexed(Dataset[Any]):
    """The items of a data set with their indexes before them, as solo-learn pretrains on them."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return (index, *self.dataset[index])


def torchvision_files(name: str, root: str | Path, split: str, download: bool | None = None) -> Any:
    """Return CIFAR-10, CIFAR-100 or STL-10 as torchvision reads it.

    Args:
        name: ``cifar10``, ``cifar100`` or ``stl10``.
        root: folder of torchvision's files.
        split: ``"train"`` or ``"test"``; for STL-10 also ``"train+unlabeled"``.
        download: whether missing files are downloaded; None is solo-learn's default, to do so.

    Raises:
        ValueError: the files are absent, incomplete or damaged; the message is one sentence.
    """
    import torchvision

    data = NAMED[name]
    dataset: Any = getattr(torchvision.datasets, name.upper())
    part: dict[str, Any] = {"train": split == "train"}
    if name == "stl10":
        part = {"split": split}
    try:
        return dataset(root, **part, download=download is not False)
    except URLError as error:
        raise ValueError(
            f"{data.title} could not be downloaded from {dataset.url}: {error.reason}."
        ) from error
    except (RuntimeError, FileNotFoundError) as error:
        reason = f"its files in {root} are absent, incomplete or damaged"
        raise ValueError(data.missing(reason)) from error


def file_of(images: Any, index: int) -> str | None:
    """Return the file of an image in a data set, None where it is not read from image files."""
    dataset, index = stored_at(images, index)
    dataset = innermost(dataset)
    return dataset.samples[index][0] if isinstance(dataset, ImageFiles) else None


def stored_at(images: Any, index: int) -> tuple[Any, int]:
    """Return the data set that an image is taken from by subsets and the like, and its index there.

    Decoded images are a data set of their own.
    """
    while hasattr(images, "dataset") and not hasattr(images, "shapes"):
        if isinstance(images, Subset):
            index = images.indices[index]
        images = images.dataset
    return images, index


def innermost(images: Any) -> Any:
    """Return the data set that a loader or a subset takes its images from."""
    while hasattr(images, "dataset"):
        images = images.dataset
    return images


# a share of the images


def stratified_indices(labels: torch.Tensor, fraction: float, seed: int) -> torch.Tensor:
    """Return the sorted indices of a share of the images of every class, at least one of each.

    The same seed chooses the same images.

    Args:
        labels: (N,) labels of all images.
        fraction: share of the images of each class, rounded to the nearest number of images.
        seed: chooses the images.

    >>> labels = torch.tensor([0, 0, 0, 0, 1, 1, 2])
    >>> labels[stratified_indices(labels, 0.5, seed=1)]
    tensor([0, 0, 1, 2])
    """
    generator = torch.Generator().manual_seed(seed)
    kept = []
    for label in labels.unique().tolist():
        images = (labels == label).nonzero().flatten()
        number = max(1, round(fraction * len(images)))
        kept.append(images[torch.randperm(len(images), generator=generator)[:number]])
    return torch.cat(kept).sort().values


def keep_fraction(images: Any, fraction: float, seed: int) -> Any:
    """Return a data set with a share of the images of every class, at least one of each."""
    # torchvision's STL-10 has labels, its CIFAR and our image files have targets.
    labels = getattr(images, "targets", getattr(images, "labels", None))
    if labels is None:
        raise ValueError(
            f"data.fraction={fraction} needs labels that can be read without the images, which "
            f"{type(images).__name__} does not have: store the data as an image folder."
        )
    indices = stratified_indices(torch.as_tensor(labels), fraction, seed)
    return Subset(images, indices.tolist())


# skipped images


def skipped_files(loaders: Iterable[Any]) -> tuple[list[str], int]:
    """Return the files that were skipped, and the number of images in their data sets.

    Args:
        loaders: loaders or data sets; those without image files are ignored.
    """
    datasets = {images for images in map(innermost, loaders) if isinstance(images, ImageFiles)}
    files = {file for images in datasets for file in images.skipped()}
    return sorted(files), sum(map(len, datasets))


def report(images: Any, title: str) -> None:
    """Log how many images of a data set were skipped, unless that was logged before."""
    files, number = skipped_files([images])
    dataset = innermost(images)
    if files and dataset.reported < len(files):
        dataset.reported = len(files)
        log.warning("%s: %s", title.capitalize(), total(files, number))


def total(files: Sequence[str], number: int) -> str:
    """Return one sentence about skipped images."""
    count = "1 image" if len(files) == 1 else f"{len(files):,} images"
    return (
        f"Skipped {count} of {number:,} that cannot be read (data.on_error=skip); "
        "others were used in their place."
    )
