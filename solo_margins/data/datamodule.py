"""The data of a run: training batches and validation images of a parsed configuration."""

from functools import partial
from typing import Any

import lightning.pytorch as pl
import torch
from omegaconf import DictConfig
from torch.utils.data import DataLoader, Subset

from solo_margins.config import setting
from solo_margins.data import class_folders, dataset_paths, deterministic, folders
from solo_margins.data.image_sizes import warn_of_small_images
from solo_margins.data.image_spec import all_views, classifier_spec
from solo_margins.losses.checks import require_choice
from solo_margins.versions import host_folder

# Pretraining with data.fraction uses the same images whatever the seed, as in solo-learn.
PRETRAINING_FRACTION_SEED = 42


class RunData(pl.LightningDataModule):
    """Training batches and validation images of a run.

    Batches are ``[indexes, views, targets]`` in pretraining and ``(images, targets)`` in linear
    evaluation. Everything is opened here, so that mistakes are found before the trainer starts.

    Args:
        cfg: a parsed pretraining or linear configuration.
        pretraining: which of the two it is.

    Raises:
        ValueError: the images are missing or cannot be used as configured; the message is one
            sentence.
    """

    def __init__(self, cfg: DictConfig, pretraining: bool) -> None:
        super().__init__()
        self.cfg = cfg
        read = FORMATS[require_choice("data.format", cfg.data.format, FORMATS)]
        if _others_choose(cfg) and cfg.data.format != "image_folder":
            raise ValueError(
                "overfit_batches and use_distributed_sampler=false need data.format=image_folder, "
                f"got {cfg.data.format}."
            )
        images = training_images(cfg, pretraining)
        _refuse_too_few(len(images), cfg)
        if pretraining:
            warn_of_small_images(cfg, images)
        self.train = read(cfg, images, pretraining)
        self.validation = _validation_loader(cfg, pretraining)

    def train_dataloader(self) -> Any:
        """Return the training batches, at the position and rank of the trainer."""
        if isinstance(self.train, deterministic.EpochBatches):
            self.train.trainer = self.trainer
        return self.train

    def val_dataloader(self) -> Any:
        """Return the validation batches, an empty list where there are none."""
        if self.validation is None:
            return []
        if self.cfg.data.format == "tensors":
            trainer: Any = self.trainer
            self.validation.dataset.device = trainer.strategy.root_device
        return self.validation

    @property
    def loaders(self) -> list[Any]:
        """All loaders, for the report on skipped images."""
        return [self.train, *([] if self.validation is None else [self.validation])]


def classifier_images(cfg: DictConfig) -> tuple[Any, Any]:
    """Return the labelled training and validation images of a linear configuration, untransformed.

    Only ``data.fraction`` of the training images is kept.
    """
    validation = _stored_images(cfg, "val_path", pretraining=False)
    return training_images(cfg, pretraining=False), validation


# training


def training_images(cfg: DictConfig, pretraining: bool) -> Any:
    """Return the training images of a parsed configuration with their labels, untransformed.

    Pretraining includes unlabelled images, with the label −1.
    """
    images = _stored_images(cfg, "train_path", pretraining)
    fraction = dataset_paths.data_fraction(cfg)
    if fraction is None:
        return images
    seed = PRETRAINING_FRACTION_SEED if pretraining else cfg.seed
    return folders.keep_fraction(images, fraction, seed)


def _printed_views(cfg: DictConfig, build: Any) -> Any:
    """Return the transform into all views, printed where ``debug_augmentations`` asks for it."""
    views = all_views(cfg, build)
    if cfg.debug_augmentations:
        print(f"Augmentations:\n{views}")
    return views


def _pil_batches(cfg: DictConfig, images: Any, pretraining: bool) -> Any:
    if pretraining:
        from solo.data.pretrain_dataloader import build_transform_pipeline

        transform = _printed_views(cfg, build_transform_pipeline)
    else:
        spec = classifier_spec(cfg)
        transform = spec.auto_augment() if cfg.auto_augment else spec.transforms()[0]
    folders.innermost(images).transform = transform
    if pretraining:
        images = folders.Indexed(images)
    batch_size, workers = cfg.optimizer.batch_size, cfg.data.num_workers
    if _others_choose(cfg):
        return _loader(images, batch_size, workers, shuffle=True, drop_last=True)
    return deterministic.PILBatches(images, batch_size, cfg.seed, workers)


def _others_choose(cfg: DictConfig) -> bool:
    """Tell whether Lightning, or the user, chooses the images of every batch."""
    overfits = bool(setting(cfg, "overfit_batches", 0))
    return overfits or not setting(cfg, "use_distributed_sampler", True)


def _dali_batches(cfg: DictConfig, images: Any, pretraining: bool) -> Any:
    from solo_margins.data import dali

    files = folders.innermost(images)
    if not isinstance(files, folders.ImageFiles):
        raise ValueError(
            f"data.format=dali reads image folders, but data.dataset={cfg.data.dataset} is read "
            "from torchvision's files: use data.format=image_folder."
        )
    kept = images.indices if isinstance(images, Subset) else range(len(files))
    augment: Any = partial(dali.views, cfg)
    if not pretraining:
        augment = partial(dali.classifier_crops, classifier_spec(cfg))
    return dali.DALIBatches(
        [files.samples[index] for index in kept],
        augment,
        cfg.optimizer.batch_size,
        cfg.seed,
        cfg.data.num_workers,
        dali.device_of(cfg),
        indexed=pretraining,
    )


def _tensor_batches(cfg: DictConfig, images: Any, pretraining: bool) -> Any:
    from solo_margins.data import batch_views, tensors

    if pretraining:
        views = _printed_views(cfg, batch_views.batch_view)
    else:
        crops, _ = batch_views.classifier_views(classifier_spec(cfg))
        from solo.data.pretrain_dataloader import NCropAugmentation

        views = NCropAugmentation(crops, 1)
    return tensors.TensorBatches(images, views, cfg.optimizer.batch_size, cfg.seed, pretraining)


# Makers of training batches, by data.format: (cfg, images, pretraining) to a loader.
FORMATS = {"image_folder": _pil_batches, "dali": _dali_batches, "tensors": _tensor_batches}


def _refuse_too_few(images: int, cfg: DictConfig) -> None:
    # An incomplete last batch is dropped; Lightning would train nothing without an error.
    ranks, size = len(cfg.devices) * cfg.num_nodes, cfg.optimizer.batch_size
    if setting(cfg, "limit_train_batches") == 0:
        return
    if deterministic.batches_per_epoch(images, size, ranks) == 0:
        shared = "" if ranks == 1 else f", which {ranks} ranks share"
        raise ValueError(
            f"optimizer.batch_size={size} exceeds the {images} training images of "
            f"data.train_path={cfg.data.train_path}{shared}: set a smaller one."
        )


# validation


def _validation_loader(cfg: DictConfig, pretraining: bool) -> Any:
    """Return the validation batches, None where a pretraining configuration has none."""
    is_named = cfg.data.dataset in dataset_paths.TORCHVISION_FILES
    has_images = is_named or setting(cfg, "data.val_path") is not None
    if pretraining and (cfg.data.no_labels or not has_images):
        return None
    images = _stored_images(cfg, "val_path", pretraining=False)
    if cfg.data.format == "tensors":
        from solo_margins.data.batch_views import classifier_views
        from solo_margins.data.tensors import TensorViews, view_loader

        _, centre = classifier_views(classifier_spec(cfg))
        views = TensorViews(images, centre)
        return view_loader(views, cfg.optimizer.batch_size, lambda some: (some[0][:, 0], some[1]))
    _, images.transform = classifier_spec(cfg).transforms()
    return _loader(images, cfg.optimizer.batch_size, cfg.data.num_workers)


# both


def _stored_images(cfg: DictConfig, key: str, pretraining: bool) -> Any:
    """Return all images of a path of the configuration, without a transform."""
    images = _opened_images(cfg, key, pretraining)
    if cfg.data.format != "tensors":
        return images
    from solo_margins.data import tensors

    return tensors.load(images)


def _opened_images(cfg: DictConfig, key: str, pretraining: bool) -> Any:
    if cfg.data.dataset in dataset_paths.TORCHVISION_FILES:
        # Without a path solo-learn keeps downloaded data in a folder of its own.
        train = dataset_paths.path_setting(cfg, "train_path") or host_folder() / "datasets"
        split = "train" if key == "train_path" else "test"
        if pretraining and cfg.data.dataset == "stl10":
            split = "train+unlabeled"
        root = dataset_paths.path_setting(cfg, key) or train
        download = setting(cfg, "data.download")
        return folders.torchvision_files(cfg.data.dataset, root, split, download=download)
    train = dataset_paths.existing_folder(cfg, "train_path")
    unlabelled = dataset_paths.unlabelled_folder(cfg)
    if pretraining and cfg.data.no_labels:
        samples = folders.unlabelled_files(train)
    else:
        # One numbering for both: a class folder that validation lacks shifts no label.
        classes = class_folders.classes_in(train, unlabelled)
        samples = folders.labelled_files(
            dataset_paths.existing_folder(cfg, key), classes, unlabelled if pretraining else None
        )
    return folders.ImageFiles(samples, on_error=setting(cfg, "data.on_error", "raise"))


def _loader(images: Any, batch_size: int, num_workers: int, **settings: Any) -> DataLoader[Any]:
    return DataLoader(
        images,
        batch_size=batch_size,
        num_workers=num_workers,
        pin_memory=torch.cuda.is_available(),
        worker_init_fn=deterministic.ignore_group_signals,
        **settings,
    )
