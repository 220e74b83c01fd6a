"""Configurations checked and completed, once, before solo-learn reads them."""

import copy
import warnings
from typing import Any

from omegaconf import DictConfig, OmegaConf
from solo.methods import METHODS, BaseMethod, LinearModel

from solo_margins.backbones import backbone_constructor, drop_null_kwargs
from solo_margins.checkpoints import find_checkpoint, read_settings
from solo_margins.config import read, require, setting, write
from solo_margins.data.dataset_paths import existing_folder, take_data_of_pretraining
from solo_margins.data.dataset_paths import resolve as resolve_images
from solo_margins.data.image_spec import NATIVE_SIZE, complete_image_spec, image_spec
from solo_margins.devices import complete_trainer_settings, runs_on_cpu
from solo_margins.learning_rates import check_schedule, settings_of_optimizer
from solo_margins.losses.checks import Range, require_choice, require_number
from solo_margins.method_names import METHOD_NAMES, canonical_name
from solo_margins.methods.base import MarginMethod
from solo_margins.methods.run_check import settle_variant
from solo_margins.registry import method_class
from solo_margins.resolvers import data_workers
from solo_margins.training.known_keys import refuse_unknown_keys
from solo_margins.training.nonfinite import GuardSettings

# Data sets that torchvision cannot download.
PATHS_NEEDED = ("custom", "imagenet", "imagenet100")

# Settings that must be numbers; null leaves one to whoever has a default.
COUNTS = (
    "max_epochs",
    "num_nodes",
    "accumulate_grad_batches",
    "log_every_n_steps",
    "check_val_every_n_epoch",
    "checkpoint.frequency",
    "optimizer.batch_size",
    "knn_eval.k",
    "method_kwargs.proj_hidden_dim",
    "method_kwargs.proj_output_dim",
    "method_kwargs.pred_hidden_dim",
    "method_kwargs.queue_size",
)
SIZES = ("seed", "data.num_workers")
RATES = (
    "gradient_clip_val",
    "optimizer.lr",
    "optimizer.classifier_lr",
    "optimizer.weight_decay",
    "scheduler.warmup_epochs",
    "scheduler.warmup_start_lr",
    "scheduler.min_lr",
)


def checked_pretraining(cfg: DictConfig) -> DictConfig:
    """Return a complete copy of a pretraining configuration, without interpolations.

    Raises:
        ValueError: something is wrong with it; the message is one sentence.
    """
    cfg = _own_copy(cfg)
    if "pretrained_feature_extractor" in cfg:
        raise ValueError(
            "This is a configuration of a linear probe (it has pretrained_feature_extractor): use "
            "main_linear.py."
        )
    require(cfg, "method")
    cfg.method = canonical_name(str(cfg.method))
    _check_method(cfg)
    refuse_unknown_keys(cfg, is_probe=False)
    OmegaConf.resolve(cfg)
    require(cfg, "augmentations")
    resolve_images(cfg, pretraining=True)
    settle_variant(cfg)
    _complete(cfg, BaseMethod)
    if setting(cfg, "auto_umap.enabled", False):
        raise ValueError(
            "auto_umap.enabled=true is not offered here; solo-learn's own main_pretrain.py has it."
        )
    _check_paths(cfg, "train_path")
    if setting(cfg, "data.val_path") and not setting(cfg, "data.no_labels"):
        _check_paths(cfg, "val_path")
    return cfg


def checked_probe(cfg: DictConfig, reads_by_dali: bool = True) -> DictConfig:
    """Return a complete copy of a linear configuration, without interpolations.

    Args:
        cfg: a linear configuration.
        reads_by_dali: whether the program reads images by DALI where ``data.format`` says so; it
            reads the same images without it otherwise.

    Raises:
        ValueError: something is wrong with it; the message is one sentence.
    """
    cfg = _own_copy(cfg)
    refuse_unknown_keys(cfg, is_probe=True)
    for group in ("lens", "knn_eval", "auto_umap"):
        if setting(cfg, f"{group}.enabled", False):
            raise ValueError(
                f"{group}.enabled=true has no effect here: it belongs to a pretraining."
            )
    require(cfg, "pretrained_feature_extractor")
    if setting(cfg, "labels") is not None and not setting(cfg, "finetune", False):
        raise ValueError(
            f"labels={cfg.labels} has no effect without finetune=true: use --config-name "
            "finetune.yaml, or data.fraction for a probe on some of the images."
        )
    # A folder becomes its checkpoint, lest auto-resume goes on with the probe of an older one.
    checkpoint = find_checkpoint(cfg.pretrained_feature_extractor)
    cfg.pretrained_feature_extractor = str(checkpoint)
    take_data_of_pretraining(cfg)
    OmegaConf.resolve(cfg)
    _fill_from_pretraining(cfg, read_settings(checkpoint) or OmegaConf.create({}))
    resolve_images(cfg, pretraining=False)
    if not reads_by_dali and setting(cfg, "data.format") == "dali":
        cfg.data.format = "image_folder"
    _complete(cfg, LinearModel)
    complete_image_spec(cfg)
    _check_paths(cfg, "train_path", "val_path")
    if setting(cfg, "auto_augment") and cfg.data.format != "image_folder":
        needed = "data.format=image_folder"
        raise ValueError(f"auto_augment=true needs {needed}, got {cfg.data.format}.")
    return cfg


def _own_copy(cfg: DictConfig) -> DictConfig:
    """Return a copy that can be changed, of a configuration that is not empty."""
    if not cfg:
        raise ValueError(
            "No configuration was named: add one, for example --config-name mocov3_margin.yaml."
        )
    own = copy.deepcopy(cfg)
    OmegaConf.set_struct(own, False)
    OmegaConf.set_readonly(own, False)
    return own


def _fill(cfg: DictConfig, key: str, value: Any) -> None:
    """Write a setting that has no value yet."""
    if setting(cfg, key) is None and value is not None:
        write(cfg, key, value)


def _fill_from_pretraining(cfg: DictConfig, trained: DictConfig) -> None:
    """Complete backbone and images of a probe by its checkpoint's settings."""
    _fill(cfg, "pretrain_method", setting(trained, "method"))
    if setting(cfg, "backbone.name") is None:
        _fill(cfg, "backbone.name", setting(trained, "backbone.name"))
        _fill(cfg, "backbone.kwargs", setting(trained, "backbone.kwargs"))
    # A null would hide the values below it.
    _fill(cfg, "data.augmentations", {})
    images = image_spec(trained)
    if images is not None:
        _fill(cfg, "data.augmentations.crop_size", images.size)
        # solo-learn knows the statistics of its own data sets; a backbone wants those of its own.
        if images.names_statistics or setting(trained, "data.dataset") != cfg.data.dataset:
            _fill(cfg, "data.augmentations.mean", list(images.mean))
            _fill(cfg, "data.augmentations.std", list(images.std))


def _complete(cfg: DictConfig, model: Any) -> None:
    """Check what pretraining and probing share, and fill in what solo-learn has no default for."""
    _check_names(cfg, model)
    _check_numbers(cfg)
    if setting(cfg, "data.format") == "dali":
        from solo_margins.data.dali import device_of

        device_of(cfg)
    _fill(cfg, "name", setting(cfg, "method", "linear"))
    _fill(cfg, "data.num_workers", data_workers(setting(cfg, "devices", 1)))
    _fill(cfg, "data.format", "image_folder")
    read(cfg, "numerics", GuardSettings)
    complete_trainer_settings(cfg)
    _refuse_shared_statistics_on_cpus(cfg)
    # What of them a method has is in method_kwargs, momentum and optimizer now.
    for group in ("heads", "teacher", "base_optimizer", "margins"):
        cfg.pop(group, None)
    drop_null_kwargs(cfg)
    _drop_settings_of_other_optimizers(cfg)
    _warn_about_long_warmup(cfg)


def _check_method(cfg: DictConfig) -> None:
    """Refuse methods that are not margin methods; solo-learn's own program trains its own."""
    method = str(cfg.method)
    if method in METHODS and issubclass(METHODS[method], MarginMethod):
        # One of ours, or one that somebody has derived from ours.
        return
    for ours in (f"{method}_margin", f"{method}_curv"):
        if ours in METHOD_NAMES:
            raise ValueError(
                f"method={method} is solo-learn's own, and its own main_pretrain.py trains it; "
                f"here use --config-name {ours}.yaml variant=baseline, which is {method} "
                "without margins."
            )
    require_choice("method", method, METHOD_NAMES)
    # It says that this solo-learn has no parent for one of ours.
    method_class(method)


def _check_names(cfg: DictConfig, model: Any) -> None:
    """Check backbone, optimizer, scheduler and data set against what solo-learn knows."""
    require(cfg, "backbone.name", "data.dataset", "optimizer.name", "optimizer.batch_size")
    require(cfg, "optimizer.lr", "optimizer.weight_decay", "scheduler.name", "max_epochs")
    backbone_constructor(str(cfg.backbone.name))
    require_choice("optimizer.name", cfg.optimizer.name, sorted(model._OPTIMIZERS))
    check_schedule(cfg.scheduler.name, setting(cfg, "scheduler.lr_decay_steps"))
    require_choice("data.dataset", cfg.data.dataset, sorted(NATIVE_SIZE))


def _check_paths(cfg: DictConfig, *keys: str) -> None:
    """Check that the data are where the configuration says."""
    # Where torchvision downloads to need not exist yet.
    if cfg.data.dataset in PATHS_NEEDED:
        for key in keys:
            existing_folder(cfg, key)


def _check_numbers(cfg: DictConfig) -> None:
    for keys, low, is_whole in ((COUNTS, 1, True), (SIZES, 0, True), (RATES, 0, False)):
        for key in keys:
            value = setting(cfg, key)
            if value is not None:
                kind = "a whole number" if is_whole else "a number"
                require_number(key, value, Range(f"{kind} of at least {low}", low=low))
                if is_whole and value != int(value):
                    raise ValueError(f"{key} must be a whole number, got {value!r}.")
    require_number("max_steps", setting(cfg, "max_steps", -1), Range("-1 or more", low=-1))


def _refuse_shared_statistics_on_cpus(cfg: DictConfig) -> None:
    """Refuse ``sync_batchnorm=true`` where PyTorch would when training starts."""
    if not setting(cfg, "sync_batchnorm", False):
        return
    processes = len(cfg.devices) * setting(cfg, "num_nodes", 1)
    # Without a process group it has no effect.
    has_group = processes > 1 or str(cfg.strategy).startswith("ddp")
    if runs_on_cpu(cfg) and has_group:
        raise ValueError(
            f"sync_batchnorm=true needs GPUs, but this run is on the CPU (processes: {processes}): "
            "with sync_batchnorm=false each process normalises by the statistics of its own images."
        )


def _drop_settings_of_other_optimizers(cfg: DictConfig) -> None:
    """Let another optimizer be chosen than the one that a data set's recipe has settings for.

    Composed configurations are merged, so LARS's settings would reach SGD, which refuses them. Keys
    that belong to no optimizer were refused before.
    """
    kwargs = setting(cfg, "optimizer.kwargs", {})
    cfg.optimizer.kwargs = settings_of_optimizer(cfg.optimizer.name, kwargs)


def _warn_about_long_warmup(cfg: DictConfig) -> None:
    warmup = setting(cfg, "scheduler.warmup_epochs", 10)
    if cfg.scheduler.name == "warmup_cosine" and warmup > cfg.max_epochs:
        warnings.warn(
            f"scheduler.warmup_epochs={warmup} exceeds max_epochs={cfg.max_epochs}: the learning "
            "rate never reaches optimizer.lr.",
            stacklevel=2,
        )
