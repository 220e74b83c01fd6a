"""Images for pretraining and for probing, read with PIL or DALI through the host."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig

from solo_margins import host
from solo_margins.runner.interruption import outlive_the_groups_signals
from solo_margins.runner.repeatable import RepeatableBatches
from solo_margins.runner.settings import setting


def pretraining_data(cfg: DictConfig) -> dict[str, Any]:
    """Return the arguments of ``Trainer.fit`` for a parsed pretraining configuration."""
    validation = _validation_loader(cfg)
    if cfg.data.format == "dali":
        module = host.PretrainDALIDataModule(
            dataset=cfg.data.dataset,
            train_data_path=cfg.data.train_path,
            transforms=_views(cfg, dali=True),
            num_large_crops=cfg.data.num_large_crops,
            num_small_crops=cfg.data.num_small_crops,
            num_workers=cfg.data.num_workers,
            batch_size=cfg.optimizer.batch_size,
            no_labels=cfg.data.no_labels,
            data_fraction=cfg.data.fraction,
            dali_device=cfg.dali.device,
            encode_indexes_into_labels=cfg.dali.encode_indexes_into_labels,
        )
        module.val_dataloader = lambda: validation
        return {"datamodule": module}
    views = _views(cfg, dali=False)
    if cfg.debug_augmentations:
        print(f"Augmentations:\n{views}")
    images = host.prepare_pretrain_dataset(
        cfg.data.dataset,
        views,
        train_data_path=cfg.data.train_path,
        data_format=cfg.data.format,
        no_labels=cfg.data.no_labels,
        data_fraction=cfg.data.fraction,
    )
    loader = host.prepare_pretrain_dataloader(
        images, batch_size=cfg.optimizer.batch_size, num_workers=cfg.data.num_workers
    )
    _refuse_empty(loader, cfg)
    return {"train_dataloaders": _repeatable(loader, cfg), "val_dataloaders": validation}


def _repeatable(loader: Any, cfg: DictConfig) -> Any:
    """Return batches that a resumed training sees as if it had not been interrupted."""
    if setting(cfg, "overfit_batches", 0) or not setting(cfg, "use_distributed_sampler", True):
        # Lightning, or the user, chooses the images of every batch.
        return loader
    return RepeatableBatches(loader, cfg.seed)


def _views(cfg: DictConfig, dali: bool) -> Any:
    def transform(view: DictConfig) -> Any:
        if dali:
            return host.build_transform_pipeline_dali(
                cfg.data.dataset, view, dali_device=cfg.dali.device
            )
        return host.build_transform_pipeline(cfg.data.dataset, view)

    return host.FullTransformPipeline(
        [host.NCropAugmentation(transform(view), view.num_crops) for view in cfg.augmentations]
    )


def _validation_loader(cfg: DictConfig) -> Any:
    """Return labelled validation images, or None where the configuration has none."""
    data = cfg.data
    if data.val_path is None and data.dataset in ("custom", "imagenet", "imagenet100"):
        return None
    if data.no_labels and data.dataset == "custom":
        return None
    _, loader = classification_loaders(cfg)
    loader.worker_init_fn = outlive_the_groups_signals
    return loader


def classification_loaders(cfg: DictConfig, **changes: Any) -> tuple[Any, Any]:
    """Return labelled images for training a classifier and for validating it, read with PIL."""
    return host.prepare_classification_data(
        cfg.data.dataset,
        train_data_path=cfg.data.train_path,
        val_data_path=cfg.data.val_path,
        data_format="image_folder" if cfg.data.format == "dali" else cfg.data.format,
        batch_size=cfg.optimizer.batch_size,
        num_workers=cfg.data.num_workers,
        **changes,
    )


def probing_data(cfg: DictConfig) -> dict[str, Any]:
    """Return the arguments of ``Trainer.fit`` for a parsed linear configuration."""
    if cfg.data.format == "dali" and cfg.auto_augment:
        raise ValueError("auto_augment=true needs data.format=image_folder, got dali.")
    train, validation = classification_loaders(
        cfg, auto_augment=cfg.auto_augment, data_fraction=cfg.data.fraction
    )
    validation.worker_init_fn = outlive_the_groups_signals
    _refuse_empty(train, cfg)
    if cfg.data.format == "dali":
        module = host.ClassificationDALIDataModule(
            dataset=cfg.data.dataset,
            train_data_path=cfg.data.train_path,
            val_data_path=cfg.data.val_path,
            num_workers=cfg.data.num_workers,
            batch_size=cfg.optimizer.batch_size,
            data_fraction=cfg.data.fraction,
            dali_device=cfg.dali.device,
        )
        module.val_dataloader = lambda: validation
        return {"datamodule": module}
    return {"train_dataloaders": _repeatable(train, cfg), "val_dataloaders": validation}


def _refuse_empty(loader: Any, cfg: DictConfig) -> None:
    if len(loader) == 0:
        # An incomplete last batch is dropped; Lightning would train nothing and be content.
        raise ValueError(
            f"optimizer.batch_size={cfg.optimizer.batch_size} exceeds the "
            f"{len(loader.dataset)} training images of data.train_path={cfg.data.train_path}."
        )
