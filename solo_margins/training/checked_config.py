"""Configurations checked and completed, once, before solo-learn reads them.

In our programs ``pretrain`` and ``linear`` do it; in solo-learn's own programs a callback of Hydra
does, which our configurations name (:mod:`solo_margins.hydra_callback`).
"""

import copy
import warnings
from dataclasses import asdict
from typing import Any

from omegaconf import DictConfig, OmegaConf
from solo.methods import METHODS, BaseMethod, LinearModel

from solo_margins.backbones import backbone_constructor
from solo_margins.checkpoints import find_checkpoint, read_settings
from solo_margins.cli import user_errors
from solo_margins.config import read, require, setting, write
from solo_margins.data.dataset_paths import existing_folder, resolve, take_data_of_pretraining
from solo_margins.data.image_spec import NATIVE_SIZE, complete_image_spec, image_spec
from solo_margins.devices import complete_trainer_settings, runs_on_cpu
from solo_margins.lens import LensSettings
from solo_margins.losses.checks import POSITIVE, Range, require_choice, require_number
from solo_margins.losses.margins import Margins
from solo_margins.methods.run_check import settle_variant
from solo_margins.methods.settings import MarginSettings
from solo_margins.recipes import RECIPES
from solo_margins.registry import METHOD_NAMES, method_class
from solo_margins.resolvers import data_workers
from solo_margins.training.known_keys import OPTIMIZER_SETTINGS, refuse_unknown_keys
from solo_margins.training.nonfinite import GuardSettings

# Data sets that torchvision cannot download.
PATHS_NEEDED = ("custom", "imagenet", "imagenet100")

# Settings that must be numbers; null leaves one to whoever has a default.
COUNTS = """max_epochs num_nodes accumulate_grad_batches log_every_n_steps check_val_every_n_epoch
    checkpoint.frequency optimizer.batch_size knn_eval.k method_kwargs.proj_hidden_dim
    method_kwargs.proj_output_dim method_kwargs.pred_hidden_dim method_kwargs.queue_size"""
SIZES = "seed data.num_workers"
RATES = """gradient_clip_val optimizer.lr optimizer.classifier_lr optimizer.weight_decay
    scheduler.warmup_epochs scheduler.warmup_start_lr scheduler.min_lr momentum.base_tau
    momentum.final_tau"""

# Settings of margin methods, besides those of MarginSettings, that solo-learn's own do not read.
SWITCHED_OFF = {
    "symmetric": True,
    "proj_batch_norm": False,
    "proj_last_batch_norm": False,
    "scale_by_temperature": True,
    "freeze_patch_embedding": False,
}


def checked(cfg: DictConfig) -> DictConfig:
    """Return a complete copy of a pretraining or linear configuration, without interpolations.

    Raises:
        SetupError: something is wrong with it; the message is one sentence.
    """
    with user_errors():
        if not cfg:
            raise ValueError(
                "No configuration was named: add one, for example --config-name mocov3_margin.yaml."
            )
        own = copy.deepcopy(cfg)
        OmegaConf.set_struct(own, False)
        OmegaConf.set_readonly(own, False)
        refuse_unknown_keys(own)
        if "pretrained_feature_extractor" in own:
            _complete_probe(own)
        else:
            _complete_pretraining(own)
        return own


def _complete_pretraining(cfg: DictConfig) -> None:
    OmegaConf.resolve(cfg)
    require(cfg, "method", "augmentations")
    refuse_unread_settings(cfg)
    _check_method(cfg)
    resolve(cfg, pretraining=True)
    if cfg.method in RECIPES:
        settle_variant(cfg)
    _complete(cfg, BaseMethod)
    _check_paths(cfg, "train_path")
    if setting(cfg, "data.val_path") and not setting(cfg, "data.no_labels"):
        _check_paths(cfg, "val_path")


def _complete_probe(cfg: DictConfig) -> None:
    require(cfg, "pretrained_feature_extractor")
    # A folder becomes its checkpoint, lest auto-resume goes on with the probe of an older one.
    checkpoint = find_checkpoint(cfg.pretrained_feature_extractor)
    cfg.pretrained_feature_extractor = str(checkpoint)
    take_data_of_pretraining(cfg)
    OmegaConf.resolve(cfg)
    _fill_from_pretraining(cfg, read_settings(checkpoint) or OmegaConf.create({}))
    resolve(cfg, pretraining=False)
    _complete(cfg, LinearModel)
    complete_image_spec(cfg)
    _check_paths(cfg, "train_path", "val_path")
    if setting(cfg, "auto_augment") and cfg.data.format != "image_folder":
        needed = "data.format=image_folder"
        raise ValueError(f"auto_augment=true needs {needed}, got {cfg.data.format}.")


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
    read(cfg, "lens", LensSettings)
    read(cfg, "numerics", GuardSettings)
    complete_trainer_settings(cfg)
    _refuse_shared_statistics_on_cpus(cfg)
    # Those of them that a method has are in method_kwargs now.
    cfg.pop("heads", None)
    # A recipe that changes the backbone cannot delete what a data set's recipe has set for its own;
    # solo-learn hands every key on, and another backbone refuses it.
    kwargs = setting(cfg, "backbone.kwargs", {})
    for name in [name for name in kwargs if kwargs[name] is None]:
        del kwargs[name]
    _drop_settings_of_other_optimizers(cfg)
    _warn_about_long_warmup(cfg)


def _check_method(cfg: DictConfig) -> None:
    method_class(cfg.method)


def _check_names(cfg: DictConfig, model: Any) -> None:
    """Check backbone, optimizer, scheduler and data set against what solo-learn knows."""
    require(cfg, "backbone.name", "data.dataset", "optimizer.name", "optimizer.batch_size")
    require(cfg, "optimizer.lr", "optimizer.weight_decay", "scheduler.name", "max_epochs")
    backbone_constructor(str(cfg.backbone.name))
    require_choice("optimizer.name", cfg.optimizer.name, sorted(model._OPTIMIZERS))
    require_choice("scheduler.name", cfg.scheduler.name, sorted(model._SCHEDULERS))
    require_choice("data.dataset", cfg.data.dataset, sorted(NATIVE_SIZE))


def _check_paths(cfg: DictConfig, *keys: str) -> None:
    """Check that the data are where the configuration says."""
    # Where torchvision downloads to need not exist yet.
    if cfg.data.dataset in PATHS_NEEDED:
        for key in keys:
            existing_folder(cfg, key)


def refuse_unread_settings(cfg: DictConfig) -> None:
    """Refuse margins for a method of solo-learn's own, which would be recorded and not trained."""
    method = cfg.method
    if method in METHOD_NAMES or method not in METHODS:
        # A fork's own method may have settings that are called alike.
        return
    unread = "margins" if setting(cfg, "margins") is not None else _unread_setting(cfg)
    if unread is None:
        return
    advice = "remove it"
    for ours in set(METHOD_NAMES) & {f"{method}_margin", f"{method}_curv"}:
        advice = (
            f"use method={ours}, which does, or remove it; --config-name {ours}.yaml "
            f"variant=baseline is {method} without margins"
        )
    raise ValueError(f"method={method} does not read {unread}: {advice}.")


def _unread_setting(cfg: DictConfig) -> str | None:
    """Return the first setting of margin methods that is not switched off, None without one."""
    settings = MarginSettings.read(cfg)
    margins, neutral = asdict(settings.margins), asdict(Margins())
    is_on = {f"margins.{name}": margins[name] != neutral[name] for name in margins}
    is_on["polarization.weight"] = settings.polarization.weight > 0
    is_on["negatives.kind"] = settings.negatives.kind != "standard"
    is_on |= {f"schedules.{name}": True for name in settings.schedules}
    for name, off in SWITCHED_OFF.items():
        is_on[name] = setting(cfg, f"method_kwargs.{name}", off) != off
    return next((f"method_kwargs.{name}" for name in is_on if is_on[name]), None)


def _check_numbers(cfg: DictConfig) -> None:
    for keys, low, is_whole in ((COUNTS, 1, True), (SIZES, 0, True), (RATES, 0, False)):
        for key in keys.split():
            value = setting(cfg, key)
            if value is not None:
                kind = "a whole number" if is_whole else "a number"
                require_number(key, value, Range(f"{kind} of at least {low}", low=low))
                if is_whole and value != int(value):
                    raise ValueError(f"{key} must be a whole number, got {value!r}.")
    require_number("max_steps", setting(cfg, "max_steps", -1), Range("-1 or more", low=-1))
    temperature = setting(cfg, "method_kwargs.temperature", 1.0)
    require_number("method_kwargs.temperature", temperature, POSITIVE)


def _refuse_shared_statistics_on_cpus(cfg: DictConfig) -> None:
    """Refuse ``sync_batchnorm=true`` where PyTorch would when training starts."""
    if not setting(cfg, "sync_batchnorm", False):
        return
    processes = len(cfg.devices) * setting(cfg, "num_nodes", 1)
    # Without a process group it has no effect.
    has_group = processes > 1 or str(cfg.strategy).startswith("ddp")
    if runs_on_cpu(cfg) and has_group:
        raise ValueError(
            f"sync_batchnorm=true needs GPUs, but this run has {processes} CPU process"
            f"{'es' * (processes > 1)}: with sync_batchnorm=false each normalises by the "
            "statistics of its own images."
        )


def _drop_settings_of_other_optimizers(cfg: DictConfig) -> None:
    """Let another optimizer be chosen than the one that a data set's recipe has settings for.

    Composed configurations are merged, so LARS's settings would reach SGD, which refuses them. Keys
    that belong to no optimizer were refused before.
    """
    kwargs = setting(cfg, "optimizer.kwargs", {})
    allowed = OPTIMIZER_SETTINGS.get(cfg.optimizer.name)
    if allowed is not None:
        for key in [key for key in kwargs if key not in allowed]:
            del kwargs[key]


def _warn_about_long_warmup(cfg: DictConfig) -> None:
    warmup = setting(cfg, "scheduler.warmup_epochs", 10)
    if cfg.scheduler.name == "warmup_cosine" and warmup > cfg.max_epochs:
        warnings.warn(
            f"scheduler.warmup_epochs={warmup} exceeds max_epochs={cfg.max_epochs}: the learning "
            "rate never reaches optimizer.lr.",
            stacklevel=2,
        )
