"""What our own configurations say beyond solo-learn's, about a run and about its recipe."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

SHOULD_MATCH_TOO = (
    "protocol",
    "data.unlabelled_folder",
    "result_id",  # of runs that go into a results file: every setting that defines them
)
"""Settings of ours that make two runs the same run."""

OPTIMIZER_SETTINGS = {
    "sgd": {"momentum", "dampening", "nesterov"},
    "lars": {"momentum", "dampening", "nesterov", "eta", "eps", "clip_lr", "exclude_bias_n_norm"},
    "adam": {"betas", "eps", "amsgrad"},
    "adamw": {"betas", "eps", "amsgrad"},
}
"""What ``optimizer.kwargs`` may hold, by ``optimizer.name``."""


def run_name(original: Any, self: Any, trainer: Any) -> str:
    """Return ``cfg.run_id`` as the name of a checkpointer's run, or else the original's name."""
    chosen = OmegaConf.select(self.cfg, "run_id", default=None)
    return str(chosen) if chosen else str(original(self, trainer))


def settle_recipe(cfg: DictConfig) -> DictConfig:
    """Return the configuration without settings that composed recipes leave over.

    Raises:
        ValueError: the recipe's batch statistics of all GPUs are asked of several CPU processes.
    """
    _refuse_shared_statistics_on_cpus(cfg)
    _drop_absent_backbone_settings(cfg)
    _warn_about_long_warmup(cfg)
    _drop_settings_of_other_optimizers(cfg)
    return cfg


def _refuse_shared_statistics_on_cpus(cfg: DictConfig) -> None:
    """Refuse ``sync_batchnorm=true`` where PyTorch would when training starts.

    Without a process group it has no effect.
    """
    if not OmegaConf.select(cfg, "sync_batchnorm", default=False):
        return
    accelerator = cfg.get("accelerator", "auto")
    is_on_cpus = accelerator == "cpu" or (accelerator == "auto" and not torch.cuda.is_available())
    processes = len(cfg.devices) * cfg.get("num_nodes", 1)
    has_group = processes > 1 or str(cfg.strategy).startswith("ddp")
    if is_on_cpus and has_group:
        raise ValueError(
            f"sync_batchnorm=true needs GPUs, but this run has {processes} CPU process"
            f"{'es' * (processes > 1)}: with sync_batchnorm=false each normalises by the "
            "statistics of its own images."
        )


def _drop_absent_backbone_settings(cfg: DictConfig) -> None:
    """Remove settings of the backbone that are null.

    A recipe that changes the backbone cannot delete what a data set's recipe has set for its own;
    solo-learn hands every key on, and another backbone refuses it.
    """
    kwargs = OmegaConf.select(cfg, "backbone.kwargs", default=None)
    for name in [name for name in kwargs or {} if kwargs[name] is None]:
        del kwargs[name]


def _warn_about_long_warmup(cfg: DictConfig) -> None:
    warmup = OmegaConf.select(cfg, "scheduler.warmup_epochs", default=10)
    is_warmed_up = OmegaConf.select(cfg, "scheduler.name", default=None) == "warmup_cosine"
    max_epochs = OmegaConf.select(cfg, "max_epochs", default=None)
    if is_warmed_up and warmup and max_epochs and warmup > max_epochs:
        warnings.warn(
            f"scheduler.warmup_epochs={warmup} exceeds max_epochs={max_epochs}: the learning rate "
            "never reaches optimizer.lr.",
            stacklevel=2,
        )


def _drop_settings_of_other_optimizers(cfg: DictConfig) -> None:
    """Let another optimizer be chosen than the one that a data set's recipe has settings for.

    Composed configurations are merged, so LARS's settings would reach SGD, which refuses them. Keys
    that belong to no optimizer stay, and are refused.
    """
    name = OmegaConf.select(cfg, "optimizer.name", default=None)
    given = OmegaConf.select(cfg, "optimizer.kwargs", default=None)
    if not given or name not in OPTIMIZER_SETTINGS:
        return
    known = set().union(*OPTIMIZER_SETTINGS.values())
    for key in known - OPTIMIZER_SETTINGS[name]:
        given.pop(key, None)
