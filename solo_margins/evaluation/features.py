"""Features of a frozen backbone, extracted once and kept in memory."""

import struct
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from solo_margins.devices import allows_channels_last
from solo_margins.files import require_memory

# How often progress is written where it cannot be redrawn, such as in a file.
SECONDS_BETWEEN_LINES = 30.0


@dataclass(frozen=True)
class Features:
    """Features of a set of images, on the CPU.

    Attributes:
        values: (passes, images, width), float32: every pass shows each image once, in the same
            order.
        labels: (images,), int64.
    """

    values: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(eq=False)
class Views(Dataset[tuple[Tensor, int]]):
    """Some views of every image, decoded once; each view has random numbers of its own.

    They depend on the seed, the image's number and the view's, and on nothing else: neither the
    batch size nor the number of workers changes what is seen.

    Args:
        images: a data set of (image, label) without a transform.
        transform: what makes a view of an image.
        number: views of every image.
        seed: which views.
    """

    images: Any
    transform: Callable[[Any], Tensor]
    number: int = 1
    seed: int = 0

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image, label = self.images[index]
        views = []
        for number in range(self.number):
            # The generator looks at 32 bits only, so all three have to be mixed into those.
            mixed = zlib.crc32(struct.pack("<qqq", self.seed, number, index))
            torch.default_generator.manual_seed(mixed)
            views.append(self.transform(image))
        return torch.stack(views), label


def view_loader(views: Views, batch_size: int = 256, num_workers: int = 0) -> Any:
    """Return batches of about ``batch_size`` views (images, views, 3, H, W) with their labels."""
    return DataLoader(
        views,
        batch_size=max(1, batch_size // views.number),
        num_workers=num_workers,
        pin_memory=torch.cuda.is_available(),
    )


def choose_device(device: str | torch.device = "auto") -> torch.device:
    """Return a device by name; ``"auto"`` takes a GPU if there is one."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(str(device))
        # A name that PyTorch knows need not be a device that is there.
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, NotImplementedError):
        raise ValueError(
            f"device={device} cannot be used on this machine: cpu always can, auto chooses."
        ) from None
    return chosen


def progress_bar(shown: bool, **options: Any) -> Any:
    """Return a progress bar of tqdm, which writes less often where it cannot be redrawn."""
    interval = 0.1 if sys.stderr.isatty() else SECONDS_BETWEEN_LINES
    return tqdm(mininterval=interval, disable=not shown, **options)


def extract_features(
    backbone: Any,
    loader: Any,
    device: str | torch.device = "auto",
    channels_last: bool = True,
    title: str = "features",
    progress: bool = True,
) -> Features:
    """Return the features of every view in a loader; the backbone learns nothing from it.

    Args:
        backbone: maps a batch of images (N, 3, H, W) to features (N, D).
        loader: batches of views (N, passes, 3, H, W) with labels (N,), see `view_loader`.
        device: where the backbone runs.
        channels_last: use the memory layout in which convolutions are usually fastest, unless the
            backbone crashes in it.
        title: what the progress bar calls it.
        progress: whether there is a progress bar.

    Raises:
        ValueError: the features do not fit into memory, or are not finite.
    """
    device = choose_device(device)
    was_training = backbone.training
    backbone.eval().to(device)
    is_channels_last = channels_last and allows_channels_last(backbone, device.type == "cpu")
    layout = torch.channels_last if is_channels_last else torch.contiguous_format
    backbone.to(memory_format=layout)
    values: Tensor | None = None
    labels: list[Tensor] = []
    done = 0
    bar = progress_bar(progress, total=len(loader.dataset), desc=title, unit="image")
    # Views made in this process seed its random numbers.
    with bar, torch.random.fork_rng([]):
        for views, targets in loader:
            images = views.flatten(0, 1).to(device, non_blocking=True)
            if images.ndim == 4:
                images = images.to(memory_format=layout)
            with torch.inference_mode():
                found = backbone(images).float()
            if not found.isfinite().all():
                raise ValueError("The backbone's features are not finite: its weights are broken.")
            if values is None:
                shape = (views.shape[1], len(loader.dataset), found.shape[-1])
                title, advice = f"Features of {shape} numbers", "lower passes or label_fraction"
                require_memory(4 * torch.Size(shape).numel(), title, advice)
                values = torch.empty(shape)
            rows = slice(done, done + len(targets))
            values[:, rows] = found.unflatten(0, views.shape[:2]).transpose(0, 1)
            labels.append(targets)
            done += len(targets)
            bar.update(len(targets))
    backbone.train(was_training)
    if values is None:
        raise ValueError(f"There are no images to extract {title} from.")
    return Features(values, torch.cat(labels).long())
