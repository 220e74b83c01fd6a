"""Small data sets, decoded once into bytes that all processes share, and batches made of them."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset
from tqdm import tqdm

from solo_margins.data.batch_views import NUMBERS, BatchView, ImageBatch
from solo_margins.data.deterministic import IMAGE, EpochBatches, derive_seed
from solo_margins.data.folders import ImageFiles
from solo_margins.files import cache_dir, complete_folder, locked, require_memory

VERSION = 1
# Images whose sizes stand for those of all when memory is estimated.
SAMPLED = 100
# A side in pixels: batches are padded to their largest image.
LARGEST = 512


class TensorImages(Dataset[Any]):
    """Decoded images with their labels, mapped from a folder of the cache.

    Args:
        folder: what `decode` has written.
        dataset: the images that it was written from.
    """

    def __init__(self, folder: Path, dataset: Any) -> None:
        # It knows what was skipped; those of torchvision hold all images in memory.
        self.dataset = dataset if isinstance(dataset, ImageFiles) else None
        self.targets = np.load(folder / "labels.npy")
        self.shapes = torch.from_numpy(np.load(folder / "shapes.npy"))
        self.pixels = np.memmap(folder / "pixels", np.uint8, "r")
        ends = (3 * self.shapes.prod(1)).cumsum(0)
        if int(ends[-1]) != len(self.pixels):
            raise ValueError(f"{folder} is damaged.")
        self.starts = [0, *ends.tolist()]
        # Most small data sets have images of one size, which are gathered at once.
        self.same_size = None
        if bool((self.shapes == self.shapes[0]).all()):
            self.same_size = self.pixels.reshape(len(self), 3, *self.shapes[0].tolist())
        if getattr(dataset, "is_skipped", None) is not None:
            dataset.is_skipped[np.load(folder / "skipped.npy")] = True

    def __len__(self) -> int:
        return len(self.targets)

    def bytes_of(self, indexes: Tensor, device: str | torch.device = "cpu") -> Tensor:
        """Return images (N, 3, H, W), smaller ones padded, on a device."""
        if self.same_size is not None:
            pixels = torch.from_numpy(self.same_size[indexes.numpy()])
        else:
            rows, columns = self.shapes[indexes].amax(0).tolist()
            pixels = torch.zeros(len(indexes), 3, rows, columns, dtype=torch.uint8)
            for place, index in enumerate(indexes.tolist()):
                height, width = self.shapes[index].tolist()
                image = self.pixels[self.starts[index] : self.starts[index + 1]].copy()
                pixels[place, :, :height, :width] = torch.from_numpy(image).view(3, height, width)
        if torch.device(device).type == "cuda":
            pixels = pixels.pin_memory()
        return pixels.to(device, non_blocking=True)


# decoding


def load(images: Any) -> TensorImages:
    """Return images decoded, from the cache if they have not changed since they were put there.

    Args:
        images: image files or one of torchvision's data sets, without a transform.

    Raises:
        ValueError: they would not fit into memory, or one cannot be read; the message is one
            sentence.
    """
    folder = cache_dir() / f"tensors-v{VERSION}" / _fingerprint(images)
    remove_abandoned(folder.parent)
    mapped = _mapped(folder, images)
    if mapped is None:
        try:
            with locked(folder.with_suffix(".lock")):
                # Another process may have decoded them while this one waited.
                mapped = _mapped(folder, images)
                if mapped is None:
                    _decode(images, folder)
                    mapped = TensorImages(folder, images)
        except OSError as error:
            raise ValueError(
                f"Decoded images cannot be written to {folder.parent}: {error}; set "
                "SOLO_MARGINS_CACHE to another folder, or use data.format=image_folder."
            ) from error
    return mapped


def _mapped(folder: Path, images: Any) -> TensorImages | None:
    """Return decoded images, None where they are absent or the machine's crash damaged them."""
    with contextlib.suppress(OSError, EOFError, ValueError):
        return TensorImages(folder, images)
    return None


def remove_abandoned(cache: Path) -> None:
    """Remove the unfinished folders of a cache whose processes were killed.

    The system frees the lock of a data set when the process that decodes it ends. On a file system
    without locks nothing is removed.
    """
    # Unfinished folders are hidden, and begin with the name of the complete one.
    for unfinished in cache.glob(".*-*"):
        name = unfinished.name[1:].partition("-")[0]
        # A cache that is read-only, or whose lock is held, stays as it is.
        with contextlib.suppress(OSError), open(cache / f"{name}.lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(unfinished, ignore_errors=True)


def _fingerprint(images: Any) -> str:
    """Return a text that changes with the names, sizes, times and labels of the files.

    The time of modification can be set by whoever writes a file, as archives do when they are
    unpacked; the time of the last change of its status cannot.
    """
    if isinstance(images, ImageFiles):
        files, what = images.samples, f"skip={images.is_skipped is not None}"
    else:
        stored = Path(images.root, images.base_folder)
        files = [(str(file), 0) for file in sorted(stored.iterdir())]
        what = str(getattr(images, "split", getattr(images, "train", None)))
    digest = hashlib.blake2b(what.encode(), digest_size=16)
    for file, label in files:
        state = os.stat(file)
        times = f"{state.st_mtime_ns} {state.st_ctime_ns}"
        line = f"{os.path.abspath(file)} {label} {state.st_size} {times}\n"
        digest.update(os.fsencode(line))
    return digest.hexdigest()


def _decode(images: Any, folder: Path) -> None:
    sampled = (images[index][0] for index in range(0, len(images), 1 + len(images) // SAMPLED))
    mean = statistics.mean(3 * image.width * image.height for image in sampled)
    require_memory(mean * len(images), "Decoded images", "use data.format=image_folder or dali")
    shutil.rmtree(folder, ignore_errors=True)
    labels, shapes = [], []
    with complete_folder(folder) as unfinished:
        with open(unfinished / "pixels", "wb") as file:
            for index in tqdm(range(len(images)), "decoding once", leave=False, unit="image"):
                image, label = images[index]
                pixels = np.asarray(image)
                if max(pixels.shape) > LARGEST:
                    raise ValueError(
                        f"data.format=tensors is for images of up to {LARGEST} pixels a side, but "
                        f"one has {image.width} × {image.height}: use data.format=image_folder."
                    )
                file.write(pixels.transpose(2, 0, 1).tobytes())
                labels.append(int(label))
                shapes.append(pixels.shape[:2])
        np.save(unfinished / "labels.npy", np.array(labels))
        np.save(unfinished / "shapes.npy", np.array(shapes))
        if getattr(images, "is_skipped", None) is not None:
            np.save(unfinished / "skipped.npy", images.is_skipped.numpy())


# batches


class TensorBatches(EpochBatches):
    """Deterministic batches of decoded images, with views made on the trainer's device.

    Args:
        dataset: decoded images, or a subset of them.
        views: from a batch to its views.
        batch_size: images per batch and rank.
        seed: of the run.
        indexed: whether batches are ``[indexes, views, targets]`` for pretraining, or
            ``(images, targets)`` for a classifier.
    """

    def __init__(self, dataset: Any, views: Any, batch_size: int, seed: int, indexed: bool) -> None:
        super().__init__(dataset, batch_size, seed)
        self.views = views
        self.indexed = indexed

    def batches(self, epoch: int, first: int) -> Iterator[Any]:
        """Yield the batches of an epoch, beginning with batch ``first``."""
        device = "cpu" if self.trainer is None else self.trainer.strategy.root_device
        for number, batch in enumerate(self.share(epoch, first), first):
            indexes = torch.tensor([index for _, index in batch])
            draw = partial(self._numbers, _generator(self.seed, epoch, number))
            images, targets = _batch(self.dataset, indexes, device, draw)
            views = self.views(images)
            yield [indexes, views, targets] if self.indexed else (*views, targets)

    def _numbers(self, generator: torch.Generator) -> Tensor:
        """Return the random numbers of one view of a batch."""
        rank, ranks = self.ranks()
        of_all_ranks = torch.rand(self.batch_size * ranks, NUMBERS, generator=generator)
        return of_all_ranks[rank::ranks]


@dataclass(eq=False)
class TensorViews(Dataset[Any]):
    """Some views of every decoded image, in whole batches; each view has numbers of its own.

    They depend on the seed, the image's number and the view's, and on nothing else.

    Args:
        dataset: decoded images, or a subset of them.
        view: makes a view.
        number: views of every image.
        seed: which views.
        device: where they are made.
    """

    dataset: Any
    view: BatchView
    number: int = 1
    seed: int = 0
    device: str | torch.device = "cpu"

    def __post_init__(self) -> None:
        generators = [_generator(self.seed, number) for number in range(self.number)]
        self.numbers = [torch.rand(len(self), NUMBERS, generator=g) for g in generators]

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, indexes: list[int]) -> tuple[Tensor, Tensor]:
        """Return views (N, views, 3, H, W) and labels (N,)."""
        chosen = torch.tensor(indexes)
        views = []
        for numbers in self.numbers:
            draw = partial(numbers.__getitem__, chosen)
            images, targets = _batch(self.dataset, chosen, self.device, draw)
            views.append(self.view(images))
        return torch.stack(views, 1), targets


def view_loader(views: TensorViews, batch_size: int, collate: Any = None) -> DataLoader[Any]:
    """Return batches of about ``batch_size`` views with their labels."""
    images = max(1, batch_size // views.number)
    return DataLoader(views, batch_size=images, collate_fn=collate or (lambda batch: batch))


def _generator(seed: int, *place: int) -> torch.Generator:
    return torch.Generator().manual_seed(derive_seed(seed, IMAGE, *place))


def _batch(
    dataset: Any, indexes: Tensor, device: str | torch.device, draw: Any
) -> tuple[ImageBatch, Tensor]:
    """Return some images of a data set, or of a subset of one, and their labels."""
    images: Any = dataset
    if isinstance(dataset, Subset):
        images = dataset.dataset
        indexes = torch.tensor([dataset.indices[index] for index in indexes.tolist()])
    heights, widths = images.shapes[indexes].unbind(1)
    batch = ImageBatch(images.bytes_of(indexes, device), heights, widths, draw)
    return batch, torch.from_numpy(images.targets[indexes.numpy()])
