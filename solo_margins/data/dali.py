"""Batches that NVIDIA DALI reads and augments, on the GPU or on the CPU.

Every epoch has its own pipeline, which reads the files in our order and draws its augmentations
from a seed of the run, the epoch and the rank.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from omegaconf import DictConfig

from solo_margins.config import setting
from solo_margins.data.class_folders import UnreadableImage, read_image
from solo_margins.data.deterministic import PIPELINE, EpochBatches, derive_seed
from solo_margins.data.folders import Samples
from solo_margins.data.image_spec import ImageSpec, all_views
from solo_margins.losses.checks import require_choice

# How many files are searched for one that cannot be decoded.
SEARCHED_FILES = 10_000

# How images are decoded for the GPU; the sizes are those that solo-learn reserves.
ON_GPU: dict[str, Any] = {
    "device": "mixed",
    "device_memory_padding": 211025920,
    "host_memory_padding": 140544512,
}

# DALI's operators: from images to the views of a batch.
Augment = Callable[[Any], Sequence[Any]]


def require_dali() -> None:
    """Raise ``ImportError`` with a sentence that says how to install DALI, where it is missing."""
    try:
        import nvidia.dali  # noqa: F401
    except ModuleNotFoundError as missing:
        if not str(missing.name).startswith("nvidia"):
            raise
        raise ImportError(
            "data.format=dali needs NVIDIA DALI, which is not installed: run "
            '`pip install ".[dali]"` (CUDA 13) or `pip install ".[dali-cuda120]"` (CUDA 12) in the '
            "folder of solo-margins, or use data.format=image_folder."
        ) from missing


def device_of(cfg: DictConfig) -> str:
    """Return the device that DALI runs on.

    Raises:
        ValueError: there is no such device; the message is one sentence.
    """
    device = require_choice("dali.device", setting(cfg, "dali.device", "gpu"), ("gpu", "cpu"))
    if device == "gpu" and not torch.cuda.is_available():
        raise ValueError(
            "dali.device=gpu needs a CUDA device, and there is none: use dali.device=cpu, or "
            "data.format=image_folder."
        )
    return str(device)


def views(cfg: DictConfig) -> Augment:
    """Return solo-learn's augmentations of all views of a pretraining configuration."""
    for number, view in enumerate(cfg.augmentations):
        if view.equalization.prob:
            raise ValueError(
                f"augmentations.{number}.equalization is not available with data.format=dali: use "
                "data.format=image_folder, or set its prob to 0."
            )
    from solo.data.dali_dataloader import build_transform_pipeline_dali

    return all_views(cfg, partial(build_transform_pipeline_dali, dali_device=device_of(cfg)))


def classifier_crops(spec: ImageSpec) -> Augment:
    """Return random crops and flips for training a classifier, as a single view."""
    from nvidia.dali import fn
    from nvidia.dali.types import DALIDataType, DALIInterpType

    def augment(images: Any) -> list[Any]:
        images = fn.random_resized_crop(
            images,
            size=spec.size,
            random_area=(spec.crop_min_scale, 1.0),
            interp_type=DALIInterpType.INTERP_CUBIC,
        )
        normalised = fn.crop_mirror_normalize(
            images,
            dtype=DALIDataType.FLOAT,
            output_layout="CHW",
            mean=[255 * value for value in spec.mean],
            std=[255 * value for value in spec.std],
            mirror=fn.random.coin_flip(probability=spec.flip_prob),
        )
        return [normalised]

    return augment


class DALIBatches(EpochBatches):
    """Deterministic batches of image files, read and augmented by DALI.

    Args:
        samples: file and label of every image.
        make_augment: returns DALI's operators; called for every epoch.
        batch_size: images per batch and rank.
        seed: of the run.
        num_threads: of the pipeline, at least one.
        device: ``"gpu"`` or ``"cpu"``.
        indexed: whether batches are ``[indexes, views, targets]`` for pretraining, or
            ``(images, targets)`` for a classifier.
    """

    def __init__(
        self,
        samples: Samples,
        make_augment: Callable[[], Augment],
        batch_size: int,
        seed: int,
        num_threads: int,
        device: str,
        indexed: bool,
    ) -> None:
        super().__init__(samples, batch_size, seed)
        animated = next((file for file, _ in samples if file.lower().endswith(".gif")), None)
        if animated is not None:
            raise UnreadableImage(
                f"{animated} is not an image that DALI can read: remove or convert .gif files, or "
                "use data.format=image_folder."
            )
        self.targets = torch.tensor([label for _, label in samples])
        self.make_augment = make_augment
        self.num_threads = max(1, num_threads)
        self.device = device
        self.indexed = indexed
        require_dali()
        # An augmentation that is not available fails here and not in the first step.
        make_augment()

    def batches(self, epoch: int, first: int) -> Iterator[Any]:
        """Yield the batches of an epoch, beginning with batch ``first``.

        Raises:
            ValueError: DALI cannot read an image; the message is one sentence that names it.
        """
        try:
            yield from self._batches(epoch, first)
        except RuntimeError as error:
            files = (file for file, _ in self.dataset)
            sentence = explanation(error, files) if is_from_dali(error) else None
            if sentence is None:
                raise
            raise ValueError(sentence) from error

    def _batches(self, epoch: int, first: int) -> Iterator[Any]:
        from nvidia.dali.plugin.pytorch import DALIGenericIterator

        pipeline = self._pipeline(epoch)
        pipeline.build()
        names = [*(f"view{number}" for number in range(1, pipeline.num_outputs)), "index"]
        reader = DALIGenericIterator(
            pipeline, names, reader_name="reader", prepare_first_batch=False
        )
        # A pipeline cannot start in the middle: its random numbers depend on all batches before.
        for [batch] in itertools.islice(reader, first, None):
            *views, indexes = (batch[name] for name in names)
            indexes = indexes.flatten().long()
            targets = self.targets[indexes]
            yield [indexes, views, targets] if self.indexed else (*views, targets)

    def _pipeline(self, epoch: int) -> Any:
        """Return a pipeline that reads this rank's images of an epoch in their order."""
        from nvidia.dali import fn, pipeline_def

        order = [index for batch in self.share(epoch) for _, index in batch]
        files = [self.dataset[index][0] for index in order]
        augment, on_gpu = self.make_augment(), self.device == "gpu"

        # solo-learn's augmentations have conditions on images.
        @pipeline_def(enable_conditionals=True)
        def views_and_indexes() -> tuple[Any, ...]:
            contents, indexes = fn.readers.file(files=files, labels=order, name="reader")
            images = fn.decoders.image(contents, **(ON_GPU if on_gpu else {}))
            return (*augment(images), indexes)

        return views_and_indexes(
            batch_size=self.batch_size,
            num_threads=self.num_threads,
            # Lightning has made the GPU of this rank the current one.
            device_id=torch.cuda.current_device() if on_gpu else None,
            seed=derive_seed(self.seed, PIPELINE, epoch, self.ranks()[0]) % 2**31,
        )


# errors of a pipeline


def is_from_dali(error: BaseException) -> bool:
    """Return whether a pipeline of DALI has failed."""
    return isinstance(error, RuntimeError) and "Critical error in pipeline" in str(error)


def explanation(error: BaseException, files: Iterable[str]) -> str | None:
    """Return one sentence about an image that DALI could not read, None for any other error.

    DALI names a file that it cannot open, but not one that it cannot decode: that one is
    searched among the files.
    """
    text = str(error)
    unopened = re.search(r"(?:File mapping failed|[Oo]pen[^:\n]*): (.+)", text)
    if unopened is not None:
        return (
            f"DALI cannot open {unopened[1].strip()}: it is empty, missing or not readable; "
            "repair or remove it."
        )
    if "decoders" not in text:
        return None
    reason = re.search(r"encountered:\s+(.+)", text)
    summary = f"DALI cannot decode an image ({reason[1].strip() if reason else 'unknown reason'})"
    for file in itertools.islice(files, SEARCHED_FILES):
        try:
            read_image(file)
        except UnreadableImage as unreadable:
            return f"{summary}: {str(unreadable).rstrip('.')}; repair or remove it."
    return f"{summary}, and does not name it; data.format=image_folder would."
