"""Repairs of solo-learn's repository form on today's stack, each small enough to offer upstream.

Programs such as solo-learn's ``main_pretrain.py`` have bound their names before a plugin is loaded,
so every repair is made in place: class methods, dictionaries, and names that solo-learn looks up in
its own modules when they are called. Applying a repair again changes nothing.
"""

from __future__ import annotations

import functools
import importlib
import sys
import warnings
from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig

from solo_margins.host import (
    checkpointing,
    dali_files,
    dali_images,
    knn,
    named_data,
    recipe,
    schedule,
    settings,
    stored_images,
)
from solo_margins.host.backbones import LIKE_MOCOV3
from solo_margins.host.clusters import keep_clusters
from solo_margins.host.label_fraction import keep_fraction
from solo_margins.host.unlabelled import accuracy_of_labelled, classification_loss


def _module(name: str) -> Any:
    return importlib.import_module(f"solo.{name}")


def _wrap(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace ``owner.name`` by ``make(original)``, once."""
    original = getattr(owner, name)
    if getattr(original, "_solo_margins_repair", False):
        return
    repaired: Any = functools.wraps(original)(make(original))
    repaired._solo_margins_repair = True
    if isinstance(vars(owner).get(name), staticmethod):
        repaired = staticmethod(repaired)
    setattr(owner, name, repaired)


def _wrap_everywhere(module: str, name: str, make: Callable[[Any], Any]) -> None:
    """Replace a function in every module of solo-learn that has imported it by name."""
    original = getattr(_module(module), name)
    _wrap(_module(module), name, make)
    repaired = getattr(_module(module), name)
    for other_name, other in list(sys.modules.items()):
        if other_name.startswith("solo.") and vars(other).get(name) is original:
            setattr(other, name, repaired)


def online_knn() -> None:
    """Make the online kNN run: see :func:`solo_margins.host.knn.repair_knn_classifier`."""
    knn.repair_knn_classifier(_module("utils.knn").WeightedKNNClassifier)


def accuracy_with_few_classes_or_labels() -> None:
    """Symptoms: fewer than 5 classes fail in ``topk``; images without a label count as wrong."""

    def make(original: Any) -> Any:
        def accuracy_at_k(outputs: Any, targets: Any, top_k: Any = (1, 5)) -> Any:
            return accuracy_of_labelled(original, outputs, targets, top_k)

        return accuracy_at_k

    _wrap_everywhere("utils.metrics", "accuracy_at_k", make)


def loss_without_labels() -> None:
    """Symptom: a batch without labels makes the online classifier NaN, one label −1 fails."""

    def make(original: Any) -> Any:
        def shared_step(self: Any, X: Any, targets: Any) -> Any:
            out = original(self, X, targets)
            data = self.cfg.data
            may_lack_labels = data.get("no_labels") or data.get("unlabelled_folder")
            if (may_lack_labels or data.dataset == "stl10") and "logits" in out:
                out["loss"] = classification_loss(out["logits"], targets)
            return out

        return shared_step

    base = _module("methods.base")
    _wrap(base.BaseMethod, "_base_shared_step", make)
    _wrap(base.BaseMomentumMethod, "_shared_step_momentum", make)


def trainer_settings() -> None:
    """Symptom: Lightning 2 refuses the default strategy None, and a list of devices on the CPU."""

    def make(original: Any) -> Any:
        def add_and_assert_lightning_cfg(cfg: DictConfig) -> DictConfig:
            return settings.complete_trainer_settings(original(cfg))

        return add_and_assert_lightning_cfg

    for module in ("args.pretrain", "args.linear"):
        _wrap(_module(module), "add_and_assert_lightning_cfg", make)


def data_of_the_configuration() -> None:
    """Find data by its name before solo-learn looks for it, and remember the size of its images.

    Symptoms: solo-learn must be told how CIFAR or STL-10 is stored; it counts a folder of
    unlabelled images as a class.
    """
    for module, pretraining in ((_module("args.pretrain"), True), (_module("args.linear"), False)):
        numbers = module._N_CLASSES_PER_DATASET

        def make(original: Any, pretraining: bool = pretraining, numbers: Any = numbers) -> Any:
            def add_and_assert_dataset_cfg(cfg: DictConfig) -> DictConfig:
                named_data.locate(cfg, pretraining)
                recipe.remember(cfg)
                numbers.pop("custom", None)
                known = named_data.current().classes_of(cfg.data.get("train_path"))
                if known is not None:
                    numbers["custom"] = len(known)
                return original(cfg)

            return add_and_assert_dataset_cfg

        _wrap(module, "add_and_assert_dataset_cfg", make)


def images_as_configured() -> None:
    """Make reading obey ``data.download`` and ``data.unlabelled_folder``; see there."""
    stored_images.read_as_configured(
        _module("data.pretrain_dataloader"), _module("data.classification_dataloader")
    )


def few_labels() -> None:
    """Make ``data.fraction`` choose the labelled images that a classifier is trained on.

    Symptoms: ``main_linear.py`` ignores it; elsewhere it fails for torchvision's files, and for a
    share of less than one image a class.
    """

    def make(original: Any) -> Any:
        def prepare_datasets(*args: Any, data_fraction: float = -1.0, **kwargs: Any) -> Any:
            train, validation = original(*args, **kwargs)
            reading = named_data.current()
            fraction = data_fraction if data_fraction > 0 else reading.fraction
            if fraction is not None:
                train = keep_fraction(train, fraction, reading.seed)
            return train, validation

        return prepare_datasets

    _wrap(_module("data.classification_dataloader"), "prepare_datasets", make)


def image_size_of_the_recipe() -> None:
    """Symptom: ``custom`` data is validated and probed at 224 pixels whatever the recipe's size.

    So is any data with ``auto_augment``, and CIFAR-100 with the statistics of CIFAR-10.
    """

    def use(original: Any) -> Any:
        def prepare_transforms(dataset: str) -> tuple[Any, Any]:
            wanted = recipe.current()
            if wanted is None or not wanted.overrules(dataset):
                return original(dataset)
            return recipe.classification_transforms(wanted)

        return prepare_transforms

    def resize(original: Any) -> Any:
        def create_transform(input_size: int, **kwargs: Any) -> Any:
            wanted = recipe.current()
            return original(wanted.size if wanted is not None else input_size, **kwargs)

        return create_transform

    _wrap(_module("data.classification_dataloader"), "prepare_transforms", use)
    _wrap(_module("data.classification_dataloader"), "create_transform", resize)


def dali_with_recipes_and_on_the_cpu() -> None:
    """Let DALI run without CUDA, and show what the recipe says.

    Symptoms: DALI on the CPU asks for CUDA device 0; without workers it has no thread; probing
    crops to 224 pixels, flips and normalises as on ImageNet whatever is configured; hidden files
    are taken for images, hidden and empty folders for classes; DeepCluster v2 asks in vain how many
    images there are.
    """
    dali: Any
    try:
        dali = _module("data.dali_dataloader")
    except ImportError:
        return
    dali.os = dali_files.VisibleImages

    def make(original: Any) -> Any:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if self.device == "cpu":
                self.device_id = None
            self.num_threads = max(1, self.num_threads)
            wanted = recipe.current()
            if hasattr(self, "cmn") and wanted is not None:
                dali_images.follow_recipe(self, dali.ops, dali.types, wanted)

        return __init__

    for builder in (dali.PretrainPipelineBuilder, dali.NormalPipelineBuilder):
        _wrap(builder, "__init__", make)
    dali.PretrainWrapper.dataset = property(lambda self: range(self.dataset_size))


def warmup_cosine() -> None:
    """Give every group its own scheduled learning rate, in closed form.

    Symptoms: a warm-up as long as the training divides by zero; ``warmup_epochs=0`` overwrites the
    online classifier's learning rate with the base rate; a warm-up of a fractional number of steps
    overshoots the base rate and never comes back to it.
    """
    scheduler = _module("utils.lr_scheduler").LinearWarmupCosineAnnealingLR
    scheduler.get_lr = schedule.scheduled_rates
    scheduler._get_closed_form_lr = schedule.scheduled_rates


def static_rates_in_checkpoints() -> None:
    """Symptom: SimSiam's checkpoints hold a ``functools.partial`` and cannot be loaded again."""

    def make(original: Any) -> Any:
        def configure_optimizers(self: Any) -> Any:
            configured = original(self)
            for entry in configured[1] if isinstance(configured, tuple) else ():
                scheduler = entry["scheduler"] if isinstance(entry, dict) else entry
                held = vars(scheduler).get("get_lr")
                if isinstance(held, functools.partial):
                    indexes = held.keywords["param_group_indexes"]
                    rates = held.keywords["lrs_to_replace"]
                    schedule.keep_rates_static(scheduler, dict(zip(indexes, rates, strict=True)))
            return configured

        return configure_optimizers

    _wrap(_module("methods.base").BaseMethod, "configure_optimizers", make)


def momentum_after_resuming() -> None:
    """Symptom: the first momentum update after resuming uses the initial tau, not the scheduled."""

    def make(original: Any) -> Any:
        def on_train_start(self: Any) -> None:
            original(self)
            self.last_step = self.trainer.global_step
            if self.last_step > 0:
                self.momentum_updater.update_tau(
                    cur_step=self.last_step, max_steps=self.trainer.estimated_stepping_batches
                )

        return on_train_start

    _wrap(_module("methods.base").BaseMomentumMethod, "on_train_start", make)


def clusters_in_checkpoints() -> None:
    """Let DeepCluster v2 be resumed; see :func:`solo_margins.host.clusters.keep_clusters`."""
    keep_clusters(_module("methods.deepclusterv2").DeepClusterV2)


def position_codes_after_resuming() -> None:
    """Symptom: All4One cannot be resumed, as its checkpoint holds a cache that is not there yet."""

    def make(original: Any) -> Any:
        def on_load_checkpoint(self: Any, checkpoint: Any) -> None:
            original(self, checkpoint)
            state = checkpoint["state_dict"]
            for name in [name for name in state if name.endswith(".cached_penc")]:
                del state[name]

        return on_load_checkpoint

    _wrap(_module("methods.all4one").All4One, "on_load_checkpoint", make)


def checkpoints_of_their_own() -> None:
    """Give every run a folder of its own, and keep its last epoch.

    Symptoms: runs with a CSV or TensorBoard logger share the folder ``0``; the last epoch is not
    saved unless ``checkpoint.frequency`` divides its number; a checkpoint's path is a syntax error
    on Hydra's command line because of a ``=`` in its name.
    """
    checkpointer = _module("utils.checkpointer").Checkpointer
    checkpointer.initial_setup = checkpointing.initial_setup
    checkpointer.save_args = checkpointing.save_args
    checkpointer.save = checkpointing.save
    checkpointer.on_train_epoch_end = checkpointing.on_train_epoch_end
    checkpointer.on_train_end = checkpointing.on_train_end


def auto_resume_of_the_same_run() -> None:
    """Symptom: a run resumes from one that differs in margins or seed, and overwrites it."""
    resumer = _module("utils.auto_resumer").AutoResumer
    resumer.SHOULD_MATCH[:] = dict.fromkeys([*resumer.SHOULD_MATCH, *checkpointing.SHOULD_MATCH])
    resumer.find_checkpoint = checkpointing.find_checkpoint


def vit_of_mocov3() -> None:
    """Symptom: methods derived from MoCo v3 get a plain ViT, which the host picks by name."""

    def make(original: Any) -> Any:
        def get_constructor(method: Any, options: Any, default: Any) -> Any:
            alias = "mocov3" if str(method).lower() in LIKE_MOCOV3 else method
            return original(alias, options, default)

        return get_constructor

    _wrap(_module("backbones.vit"), "get_constructor", make)


REPAIRS: tuple[Callable[[], None], ...] = (
    online_knn,
    accuracy_with_few_classes_or_labels,
    loss_without_labels,
    trainer_settings,
    data_of_the_configuration,
    images_as_configured,
    few_labels,
    image_size_of_the_recipe,
    dali_with_recipes_and_on_the_cpu,
    warmup_cosine,
    static_rates_in_checkpoints,
    momentum_after_resuming,
    clusters_in_checkpoints,
    position_codes_after_resuming,
    checkpoints_of_their_own,
    auto_resume_of_the_same_run,
    vit_of_mocov3,
)


def repair() -> None:
    """Apply every repair; one whose place is not found is reported and left out."""
    for apply in REPAIRS:
        try:
            apply()
        except (AttributeError, ImportError, KeyError) as reason:
            warnings.warn(
                f"The repair {apply.__name__!r} does not fit the installed solo-learn and was "
                f"left out: {reason}",
                stacklevel=2,
            )
