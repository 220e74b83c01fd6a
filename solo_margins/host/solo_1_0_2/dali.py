"""Images read with NVIDIA DALI, on the GPU or on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from nvidia.dali.pipeline import Pipeline
from nvidia.dali.plugin.pytorch import LastBatchPolicy
from omegaconf import DictConfig
from solo.methods import dali as loaders
from solo.utils import dali_dataloader as pipelines

from solo_margins.host import dali_files, dali_images, recipe
from solo_margins.host.lightning import pl
from solo_margins.host.repairs.dali_pipelines import derived_seed, shuffled_by
from solo_margins.host.solo_1_0_2.config import set_defaults

pipelines.os = dali_files.VisibleImages


class _OnCpu(Pipeline):
    """Keeps a pipeline from asking for a CUDA device, which the release passes in any case."""

    def __init__(self, batch_size: int, num_threads: int, device_id: int | None, seed: int) -> None:
        super().__init__(batch_size, num_threads, device_id=None, seed=seed)


class _PretrainPipeline(pipelines.PretrainPipeline):
    """Pretraining on visible images only, in an order that depends on the seed."""

    def __init__(self, data_path: Path, **kwargs: Any) -> None:
        super().__init__(data_path, **kwargs)
        if not kwargs["no_labels"] and not kwargs["encode_indexes_into_labels"]:
            self.reader = _reader(data_path, shuffled=True, **kwargs)
        self.reader = shuffled_by(derived_seed(), self.reader)


def _reader(data_path: Path, shuffled: bool, **kwargs: Any) -> Any:
    """Return a reader of class folders; the release leaves it to DALI to list them."""
    files, labels = dali_files.labelled_files(data_path)
    return pipelines.ops.readers.File(
        files=files,
        labels=labels,
        shard_id=kwargs["shard_id"],
        num_shards=kwargs["num_shards"],
        shuffle_after_epoch=shuffled,
    )


class _PretrainOnCpu(_PretrainPipeline, _OnCpu):
    """Pretraining pipeline without CUDA."""


class _ClassificationPipeline(pipelines.NormalPipeline):
    """Classification at the recipe's size and with the right statistics."""

    def __init__(self, data_path: Path, **kwargs: Any) -> None:
        super().__init__(data_path, **kwargs)
        self.reader = _reader(data_path, shuffled=not self.validation, **kwargs)
        if not self.validation:
            self.reader = shuffled_by(derived_seed(), self.reader)
        wanted = recipe.current() or recipe.ImageRecipe(
            224, recipe.IMAGENET_MEAN, recipe.IMAGENET_STD
        )
        dali_images.follow_recipe(self, pipelines.ops, pipelines.types, wanted)


class _ClassificationOnCpu(_ClassificationPipeline, _OnCpu):
    """Classification pipeline without CUDA."""


def build_transform_pipeline_dali(dataset: str, cfg: DictConfig, dali_device: str) -> Any:
    """Return the augmentations of one view as DALI operators.

    Args:
        dataset: name of the data set, which decides on mean and standard deviation.
        cfg: as for the PIL transforms; equalisation and ``rrc.enabled=False`` are not offered.
        dali_device: ``"gpu"`` or ``"cpu"``.
    """
    for setting, is_set in (
        ("equalization", cfg.equalization.prob),
        ("rrc.enabled=False", not cfg.rrc.enabled),
    ):
        if is_set:
            raise NotImplementedError(
                f"The augmentation {setting} is not offered by DALI on solo-learn 1.0.2 from the "
                "package registry; use data.format=image_folder."
            )
    mean, std = recipe.statistics_of(dataset, cfg)
    jitter = cfg.color_jitter
    return pipelines.CustomTransform(
        device=dali_device,
        brightness=jitter.get("brightness", 0),
        contrast=jitter.get("contrast", 0),
        saturation=jitter.get("saturation", 0),
        hue=jitter.get("hue", 0),
        color_jitter_prob=jitter.prob,
        gray_scale_prob=cfg.grayscale.prob,
        horizontal_flip_prob=cfg.horizontal_flip.prob,
        gaussian_prob=cfg.gaussian_blur.prob,
        solarization_prob=cfg.solarization.prob,
        min_scale=cfg.rrc.crop_min_scale,
        max_scale=cfg.rrc.crop_max_scale,
        crop_size=cfg.crop_size,
        mean=list(mean),
        std=list(std),
    )


class _DALIDataModule(pl.LightningDataModule):
    """What both data modules share: devices, shards and a check of the settings."""

    def __init__(self, dali_device: str, data_fraction: float) -> None:
        super().__init__()
        if dali_device not in ("gpu", "cpu"):
            raise ValueError(f"dali.device must be 'gpu' or 'cpu', got {dali_device!r}.")
        if data_fraction > 0:
            raise NotImplementedError(
                "data.fraction with data.format=dali is not in solo-learn 1.0.2 from the package "
                "registry; solo-learn's repository (1.0.6 or later) has it."
            )
        self.dali_device = dali_device

    def _shared_arguments(self) -> dict[str, Any]:
        assert self.trainer is not None
        return {
            "batch_size": self.batch_size,
            "device": self.dali_device,
            "device_id": self.trainer.local_rank,
            "shard_id": self.trainer.global_rank,
            "num_shards": self.trainer.world_size,
            "num_threads": max(1, self.num_workers),
            "seed": derived_seed(self.trainer.global_rank),
        }

    batch_size: int
    num_workers: int


class PretrainDALIDataModule(_DALIDataModule):
    """Batches ``[indexes, views, targets]`` of an image folder.

    Args:
        dataset: name of the data set.
        train_data_path: folder with one folder a class, or with the images if ``no_labels``.
        transforms: pipeline of all views, built of ``NCropAugmentation``.
        num_large_crops: number of large views.
        num_small_crops: number of small views.
        batch_size: images a process and batch.
        num_workers: threads.
        no_labels: the images have no labels.
        data_fraction: not offered; negative for all.
        dali_device: ``"gpu"`` or ``"cpu"``.
        encode_indexes_into_labels: give the images' true indexes instead of their place in the
            batch.
    """

    def __init__(
        self,
        dataset: str,
        train_data_path: str | Path,
        transforms: Any,
        num_large_crops: int,
        num_small_crops: int,
        batch_size: int,
        num_workers: int = 4,
        no_labels: bool = False,
        data_fraction: float = -1.0,
        dali_device: str = "gpu",
        encode_indexes_into_labels: bool = False,
    ) -> None:
        super().__init__(dali_device, data_fraction)
        self.dataset = dataset
        self.train_data_path = Path(train_data_path)
        self.transforms = transforms
        self.num_large_crops = num_large_crops
        self.num_small_crops = num_small_crops
        self.batch_size = batch_size
        self.num_workers = num_workers
        self.no_labels = no_labels
        self.encode_indexes_into_labels = encode_indexes_into_labels

    @staticmethod
    def add_and_assert_specific_cfg(cfg: DictConfig) -> DictConfig:
        """Return the configuration with DALI's defaults filled in."""
        defaults = {"dali.device": "gpu", "dali.encode_indexes_into_labels": False}
        return set_defaults(cfg, defaults)

    def setup(self, stage: str | None = None) -> None:
        """Build the pipeline of this process."""
        build: Any = _PretrainOnCpu if self.dali_device == "cpu" else _PretrainPipeline
        shared = self._shared_arguments()
        pipeline = build(
            self.train_data_path,
            transforms=[views.transform for views in self.transforms.transforms],
            num_crops_per_aug=[views.num_crops for views in self.transforms.transforms],
            no_labels=self.no_labels,
            encode_indexes_into_labels=self.encode_indexes_into_labels,
            **shared,
        )
        use_cuda = torch.cuda.is_available() and self.dali_device == "gpu"
        large = [f"large{i}" for i in range(self.num_large_crops)]
        small = [f"small{i}" for i in range(self.num_small_crops)]
        labels = pipeline.conversion_map if self.encode_indexes_into_labels else None
        self.train_loader = loaders.PretrainWrapper(
            model_batch_size=self.batch_size,
            model_rank=shared["shard_id"],
            model_device=torch.device("cuda" if use_cuda else "cpu"),
            conversion_map=labels,
            pipelines=pipeline,
            output_map=[*large, *small, "label"],
            reader_name="Reader",
            last_batch_policy=LastBatchPolicy.DROP,
            auto_reset=True,
        )
        # For DeepCluster, which asks how many images there are.
        self.train_loader.dataset = range(pipeline.epoch_size("Reader"))

    def train_dataloader(self) -> Any:
        """Return the training batches."""
        return self.train_loader


class ClassificationDALIDataModule(_DALIDataModule):
    """Batches ``(images, targets)`` of image folders for training and validation.

    Args:
        dataset: name of the data set.
        train_data_path: folder with one folder a class.
        val_data_path: the same for validation.
        batch_size: images a process and batch.
        num_workers: threads.
        data_fraction: not offered; negative for all.
        dali_device: ``"gpu"`` or ``"cpu"``.
    """

    def __init__(
        self,
        dataset: str,
        train_data_path: str | Path,
        val_data_path: str | Path,
        batch_size: int,
        num_workers: int = 4,
        data_fraction: float = -1.0,
        dali_device: str = "gpu",
    ) -> None:
        super().__init__(dali_device, data_fraction)
        if dataset not in ("imagenet", "imagenet100", "custom"):
            raise ValueError(
                f"DALI reads imagenet, imagenet100 and custom image folders, got {dataset!r}."
            )
        self.dataset = dataset
        self.train_data_path = Path(train_data_path)
        self.val_data_path = Path(val_data_path)
        self.batch_size = batch_size
        self.num_workers = num_workers

    @staticmethod
    def add_and_assert_specific_cfg(cfg: DictConfig) -> DictConfig:
        """Return the configuration with DALI's defaults filled in."""
        return set_defaults(cfg, {"dali.device": "gpu"})

    def setup(self, stage: str | None = None) -> None:
        """Build the pipelines of this process."""
        self.train_loader = self._loader(self.train_data_path, LastBatchPolicy.DROP)
        self.val_loader = self._loader(self.val_data_path, LastBatchPolicy.PARTIAL)

    def _loader(self, folder: Path, policy: Any) -> Any:
        build = _ClassificationOnCpu if self.dali_device == "cpu" else _ClassificationPipeline
        validation = policy is LastBatchPolicy.PARTIAL
        return loaders.Wrapper(
            build(folder, validation=validation, **self._shared_arguments()),
            output_map=["x", "label"],
            reader_name="Reader",
            last_batch_policy=policy,
            auto_reset=True,
        )

    def train_dataloader(self) -> Any:
        """Return the training batches."""
        return self.train_loader

    def val_dataloader(self) -> Any:
        """Return the validation batches."""
        return self.val_loader
