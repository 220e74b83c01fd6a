"""DALI's pipelines where there is no CUDA, or no worker."""

from __future__ import annotations

from typing import Any


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
    """Prepare a pipeline for pretraining that needs neither CUDA on the CPU nor a worker."""
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
    """Prepare a pipeline for classification that needs neither CUDA on the CPU nor a worker."""
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
    need_no_more_than_given(self)


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
