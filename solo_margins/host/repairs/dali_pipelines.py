"""DALI ignores `seed`: every run has the same order of images and the same augmentations. On
several machines it numbers images by the local rank, so that SimCLR takes different images for
views of one, and ranks of different machines draw the same augmentations. On the CPU it asks for
CUDA device 0. Without workers it has no thread. DeepCluster v2 asks DALI's loader in vain how
many images there are.
"""

from __future__ import annotations

import functools
import os
import random
import warnings
from typing import Any

from solo_margins.host.changes import Wrap


def prepare_pretraining(
    original: Any,
    self: Any,
    data_path: Any,
    batch_size: int,
    device: str,
    transforms: Any,
    random_shuffle: bool = True,
    device_id: int = 0,
    shard_id: int = 0,
    num_shards: int = 1,
    num_threads: int = 4,
    seed: int = 12,
    no_labels: bool = False,
    encode_indexes_into_labels: bool = False,
    data_fraction: float = -1.0,
) -> None:
    """Prepare a pipeline for pretraining that follows the run's seed, on any device."""
    original(
        self,
        data_path,
        batch_size,
        device,
        transforms,
        random_shuffle=random_shuffle,
        device_id=device_id,
        shard_id=shard_id,
        num_shards=num_shards,
        num_threads=num_threads,
        seed=seed,
        no_labels=no_labels,
        encode_indexes_into_labels=encode_indexes_into_labels,
        data_fraction=data_fraction,
    )
    self.seed = derived_seed(seed, shard_id)
    if random_shuffle:
        self.reader = shuffled_by(derived_seed(seed), self.reader)
    need_no_more_than_given(self)


def prepare_classification(
    original: Any,
    self: Any,
    data_path: Any,
    batch_size: int,
    device: str,
    validation: bool = False,
    device_id: int = 0,
    shard_id: int = 0,
    num_shards: int = 1,
    num_threads: int = 4,
    seed: int = 12,
    data_fraction: float = -1.0,
) -> None:
    """Prepare a pipeline for classification that follows the run's seed, on any device."""
    original(
        self,
        data_path,
        batch_size,
        device,
        validation=validation,
        device_id=device_id,
        shard_id=shard_id,
        num_shards=num_shards,
        num_threads=num_threads,
        seed=seed,
        data_fraction=data_fraction,
    )
    self.seed = derived_seed(seed, shard_id)
    if not validation:
        self.reader = shuffled_by(derived_seed(seed), self.reader)
    need_no_more_than_given(self)


def derived_seed(*parts: int) -> int:
    """Return a seed of 31 bits for these numbers and the seed of Lightning's ``seed_everything``.

    Lightning keeps that one in the environment, where the processes that it starts find it too.
    """
    return random.Random(repr((os.environ.get("PL_GLOBAL_SEED"), *parts))).getrandbits(31)


def shuffled_by(seed: int, reader: Any) -> Any:
    """Return a reader whose order of images in every epoch depends on a seed.

    All ranks must be given the same one: each reads its part of the common order.
    """
    if isinstance(reader, functools.partial):
        # A solo-learn that has taken this repair up has done it already.
        return reader
    if "shuffle_after_epoch_seed" not in reader.schema.GetArgumentNames():
        warnings.warn(
            "DALI before 2.1 shuffles images in the same way whatever the seed; augmentations "
            "follow the seed.",
            stacklevel=2,
        )
        return reader
    return functools.partial(reader, shuffle_after_epoch_seed=seed)


def need_no_more_than_given(pipeline: Any) -> None:
    """Let a pipeline on the CPU ask for no CUDA device, and have at least one thread."""
    if pipeline.device == "cpu":
        pipeline.device_id = None
    pipeline.num_threads = max(1, pipeline.num_threads)


def tell_number_of_images(
    original: Any,
    self: Any,
    model_batch_size: int,
    model_rank: int,
    model_device: str,
    dataset_size: int,
    conversion_map: Any = None,
    *args: Any,
    **kwargs: Any,
) -> None:
    """Give DALI's iterator a ``dataset`` with a length, as other loaders have."""
    original(
        self,
        model_batch_size,
        model_rank,
        model_device,
        dataset_size,
        conversion_map,
        *args,
        **kwargs,
    )
    self.dataset = range(dataset_size)


def number_by_global_rank(original: Any, self: Any, stage: Any = None) -> None:
    """Let images of different machines have different numbers."""
    original(self, stage)
    self.train_loader.model_rank = self.shard_id


CHANGES = (
    Wrap("data.dali_dataloader", "PretrainPipelineBuilder.__init__", prepare_pretraining),
    Wrap("data.dali_dataloader", "NormalPipelineBuilder.__init__", prepare_classification),
    Wrap("data.dali_dataloader", "PretrainWrapper.__init__", tell_number_of_images),
    Wrap("data.dali_dataloader", "PretrainDALIDataModule.setup", number_by_global_rank),
)
NEEDS = "nvidia.dali"
"""Without this module solo-learn itself leaves out what is changed here."""
