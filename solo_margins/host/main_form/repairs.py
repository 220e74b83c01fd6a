"""What is broken in solo-learn's repository form on today's stack, and how it is repaired.

Every repair is small enough to offer upstream, and none depends on anything of ours: no setting, no
state. ``contract`` applies them while solo-learn runs.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from lightning.pytorch import seed_everything
from omegaconf import DictConfig

from solo_margins.host import checkpointing, clusters, dali_pipelines, knn
from solo_margins.host.memory_format import keep_contiguous
from solo_margins.host.patches import Extend, Rebase, Repair, Replace, Wrap
from solo_margins.host.schedule import keep_rates_static, scheduled_rates
from solo_margins.host.settings import complete_trainer_settings
from solo_margins.host.unlabelled import accuracy_of_labelled, classification_loss


def train_on_labelled(original: Any, self: Any, X: Any, targets: Any) -> Any:
    """Let images without a label add nothing to the classifier's loss."""
    out = original(self, X, targets)
    if "logits" in out:
        out["loss"] = classification_loss(out["logits"], targets)
    return out


def add_trainer_settings(original: Any, cfg: DictConfig) -> DictConfig:
    """Add a strategy and devices that Lightning 2 accepts."""
    return complete_trainer_settings(original(cfg))


def add_and_apply_trainer_settings(original: Any, cfg: DictConfig) -> DictConfig:
    """Add a strategy and devices that Lightning 2 accepts, and set the seed.

    ``main_pretrain.py`` sets it itself after it has parsed its configuration.
    """
    cfg = complete_trainer_settings(original(cfg))
    seed_everything(cfg.seed)
    return cfg


def keep_static_rates_as_data(original: Any, self: Any) -> Any:
    """Keep learning rates that are not scheduled as numbers in the scheduler's state."""
    configured = original(self)
    for entry in configured[1] if isinstance(configured, tuple) else ():
        scheduler = entry["scheduler"] if isinstance(entry, dict) else entry
        held = vars(scheduler).get("get_lr")
        if isinstance(held, functools.partial):
            indexes = held.keywords["param_group_indexes"]
            rates = held.keywords["lrs_to_replace"]
            keep_rates_static(scheduler, dict(zip(indexes, rates, strict=True)))
    return configured


def take_up_momentum(original: Any, self: Any) -> None:
    """Take up the schedule of tau where a resumed training left it."""
    original(self)
    self.last_step = self.trainer.global_step
    if self.last_step > 0:
        self.momentum_updater.update_tau(
            cur_step=self.last_step, max_steps=self.trainer.estimated_stepping_batches
        )


def keep_method_contiguous(original: Any, self: Any, cfg: DictConfig) -> None:
    """Keep a method in contiguous memory where channels-last memory would crash."""
    original(self, cfg)
    keep_contiguous(self, cfg)


def keep_classifier_contiguous(
    original: Any,
    self: Any,
    backbone: Any,
    cfg: DictConfig,
    loss_func: Any = None,
    mixup_func: Any = None,
) -> None:
    """Keep a linear classifier in contiguous memory where channels-last memory would crash."""
    original(self, backbone, cfg, loss_func, mixup_func)
    keep_contiguous(self, cfg)


def whiten_in_full_precision(original: Any, self: Any, x: Any) -> Any:
    """Whiten in float32 or wider, whatever the features are rounded to."""
    with torch.autocast(x.device.type, enabled=False):
        return original(self, x.to(torch.promote_types(x.dtype, torch.float32)))


REPAIRS = (
    Repair(
        "online_knn",
        "The online kNN fails with today's torchmetrics (`Unexpected keyword arguments: "
        "compute_on_step`). It fails with an index error when a class is missing among the "
        "validation labels, whose number it takes for the number of classes. Images without a "
        "label vote.",
        (
            Rebase("utils.knn", "WeightedKNNClassifier", knn.UpdateOnlyMetric),
            Replace("utils.knn", "WeightedKNNClassifier.compute", knn.compute),
        ),
    ),
    Repair(
        "accuracy_with_few_classes_or_labels",
        "Accuracies of fewer than 5 classes fail in `topk`. Images without a label count as wrong.",
        (Wrap("utils.metrics", "accuracy_at_k", accuracy_of_labelled, everywhere=True),),
    ),
    Repair(
        "loss_without_labels",
        "A batch without any label makes the weights of the online classifier NaN.",
        (
            Wrap("methods.base", "BaseMethod._base_shared_step", train_on_labelled),
            Wrap("methods.base", "BaseMomentumMethod._shared_step_momentum", train_on_labelled),
        ),
    ),
    Repair(
        "trainer_settings",
        "Lightning 2 refuses the default strategy None, and a list of devices on the CPU. Eight "
        'devices as a text, `devices: "8"`, scale the learning rate for one. `main_linear.py` '
        "ignores `seed`.",
        (
            Wrap("args.pretrain", "add_and_assert_lightning_cfg", add_trainer_settings),
            Wrap("args.linear", "add_and_assert_lightning_cfg", add_and_apply_trainer_settings),
        ),
    ),
    Repair(
        "narrow_convolutions_on_the_cpu",
        "A CPU process dies of a segmentation fault in `backward` when the network has a 1x1 "
        "convolution with a stride and fewer than 16 input channels, as the stems of RepVGG and "
        "MobileOne: PyTorch writes past its memory there if it is in channels-last format.",
        (
            Wrap("methods.base", "BaseMethod.__init__", keep_method_contiguous),
            Wrap("methods.linear", "LinearModel.__init__", keep_classifier_contiguous),
        ),
    ),
    Repair(
        "whitening_in_full_precision",
        "W-MSE in half precision on a CPU fails with `linalg.cholesky: the input is not "
        "positive-definite`: the covariance is rounded to half precision, too.",
        (Wrap("utils.whitening", "Whitening2d.forward", whiten_in_full_precision),),
    ),
    Repair(
        "warmup_cosine",
        "A warm-up as long as the training divides by zero. `warmup_epochs=0` overwrites the "
        "online classifier's learning rate with the base rate. A warm-up of a fractional number of "
        "steps overshoots the base rate and never comes back to it.",
        (
            Replace("utils.lr_scheduler", "LinearWarmupCosineAnnealingLR.get_lr", scheduled_rates),
            Replace(
                "utils.lr_scheduler",
                "LinearWarmupCosineAnnealingLR._get_closed_form_lr",
                scheduled_rates,
            ),
        ),
    ),
    Repair(
        "static_rates_in_checkpoints",
        "SimSiam's checkpoints hold a `functools.partial` and cannot be loaded again.",
        (Wrap("methods.base", "BaseMethod.configure_optimizers", keep_static_rates_as_data),),
    ),
    Repair(
        "momentum_after_resuming",
        "The first momentum update after resuming uses the initial tau, not the scheduled one.",
        (Wrap("methods.base", "BaseMomentumMethod.on_train_start", take_up_momentum),),
    ),
    Repair(
        "clusters_in_checkpoints",
        "DeepCluster v2 cannot be resumed, as its memory of features is in the checkpoint but not "
        "yet in the method. Without it the next epoch's clusters are those of random features.",
        (
            Wrap("methods.deepclusterv2", "DeepClusterV2.on_train_start", clusters.on_train_start),
            Wrap(
                "methods.deepclusterv2",
                "DeepClusterV2.on_save_checkpoint",
                clusters.on_save_checkpoint,
            ),
            Wrap(
                "methods.deepclusterv2",
                "DeepClusterV2.on_load_checkpoint",
                clusters.on_load_checkpoint,
            ),
        ),
    ),
    Repair(
        "checkpoints_of_their_own",
        "Runs with a CSV or TensorBoard logger share the folder `0`. Without a logger, every "
        "process chooses a folder of its own. The last epoch is not saved unless "
        "`checkpoint.frequency` divides its number. A checkpoint that is not written to its end "
        "looks like a good one. A checkpoint's path is a syntax error on Hydra's command line "
        "because of a `=` in its name.",
        (
            Replace("utils.checkpointer", "Checkpointer.run_name", checkpointing.run_name),
            Replace(
                "utils.checkpointer", "Checkpointer.initial_setup", checkpointing.initial_setup
            ),
            Replace("utils.checkpointer", "Checkpointer.save_args", checkpointing.save_args),
            Replace("utils.checkpointer", "Checkpointer.save", checkpointing.save),
            Replace(
                "utils.checkpointer",
                "Checkpointer.on_train_epoch_end",
                checkpointing.on_train_epoch_end,
            ),
            Replace("utils.checkpointer", "Checkpointer.on_train_end", checkpointing.on_train_end),
        ),
    ),
    Repair(
        "auto_resume_of_the_same_run",
        "A run resumes from one that differs in seed, augmentations or settings of the method, and "
        "overwrites it. It resumes from any of a run's checkpoints, not from the newest one. A "
        "broken file of another run ends it.",
        (
            Extend("utils.auto_resumer", "AutoResumer.SHOULD_MATCH", checkpointing.SHOULD_MATCH),
            Replace(
                "utils.auto_resumer", "AutoResumer.find_checkpoint", checkpointing.find_checkpoint
            ),
        ),
    ),
    Repair(
        "dali_pipelines",
        "DALI ignores `seed`: every run has the same order of images and the same augmentations. "
        "On several machines it numbers images by the local rank, so that SimCLR takes different "
        "images for views of one, and ranks of different machines draw the same augmentations. On "
        "the CPU it asks for CUDA device 0. Without workers it has no thread. DeepCluster v2 asks "
        "DALI's loader in vain how many images there are.",
        (
            Wrap(
                "data.dali_dataloader",
                "PretrainPipelineBuilder.__init__",
                dali_pipelines.prepare_pretraining,
            ),
            Wrap(
                "data.dali_dataloader",
                "NormalPipelineBuilder.__init__",
                dali_pipelines.prepare_classification,
            ),
            Wrap(
                "data.dali_dataloader",
                "PretrainWrapper.__init__",
                dali_pipelines.tell_number_of_images,
            ),
            Wrap(
                "data.dali_dataloader",
                "PretrainDALIDataModule.setup",
                dali_pipelines.number_by_global_rank,
            ),
        ),
        needs="nvidia.dali",
    ),
)
