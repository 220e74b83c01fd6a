"""What our own configurations say beyond solo-learn's, about a run and about its recipe."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from omegaconf import DictConfig, OmegaConf

from solo_margins.host import OTHER_METHODS
from solo_margins.host.repairs.trainer_settings import runs_on_cpu
from solo_margins.losses.margins import Margins
from solo_margins.registry import OUR_METHODS

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

SOLO_LEARNS_METHODS = ("simclr", "byol", "mocov3", *OTHER_METHODS.values())
"""Methods that read no setting of ours; a fork's own may have settings that are called alike."""

WITHOUT_EFFECT = {
    "margins": asdict(Margins()),
    "polarization": {"weight": 0, "lower": ..., "upper": ...},
    "negatives": {"kind": "standard", "tau_plus": ..., "beta": ...},
    "symmetric": True,
    "proj_batch_norm": False,
    "proj_last_batch_norm": False,
    "scale_by_temperature": True,
    "freeze_patch_embedding": False,
}
"""Settings of margin methods in ``method_kwargs``, switched off; ``...`` is any value."""


def run_name(original: Any, self: Any, trainer: Any) -> str:
    """Return ``cfg.run_id`` as the name of a checkpointer's run, or else the original's name."""
    chosen = OmegaConf.select(self.cfg, "run_id", default=None)
    return str(chosen) if chosen else str(original(self, trainer))


def settle_recipe(cfg: DictConfig) -> DictConfig:
    """Return the configuration without settings that composed recipes leave over.

    Raises:
        ValueError: it has settings that its method does not read, or asks for batch statistics of
            all GPUs on several CPU processes; the message is one sentence.
    """
    _refuse_settings_of_margin_methods(cfg)
    _refuse_shared_statistics_on_cpus(cfg)
    _drop_absent_backbone_settings(cfg)
    _warn_about_long_warmup(cfg)
    _drop_settings_of_other_optimizers(cfg)
    if OmegaConf.select(cfg, "max_epochs", default=None) is not None:
        # A literal from here on: solo-learn hands it to Lightning unresolved.
        cfg.max_epochs = cfg.max_epochs
    return cfg


def _refuse_settings_of_margin_methods(cfg: DictConfig) -> None:
    """Refuse margins for a method of solo-learn's own, which would be recorded and not trained."""
    method = OmegaConf.select(cfg, "method", default=None)
    if method not in SOLO_LEARNS_METHODS:
        return
    kwargs = OmegaConf.select(cfg, "method_kwargs", default=None)
    given: Any = OmegaConf.to_container(kwargs, resolve=True) if kwargs else {}
    found = [f"method_kwargs.{key}" for key in _switched_on(given)]
    if OmegaConf.select(cfg, "margins", default=None) is not None:
        found.append("margins")
    if not found:
        return
    advice = "remove it"
    for ours in OUR_METHODS:
        if ours in (f"{method}_margin", f"{method}_curv"):
            advice = (
                f"use method={ours}, which does, or remove it; --config-name {ours}.yaml "
                f"variant=baseline is {method} without margins"
            )
    raise ValueError(f"method={method} does not read {found[0]}: {advice}.")


def _switched_on(kwargs: Mapping[str, Any]) -> Iterator[str]:
    """Yield settings of margin methods that are not switched off."""
    for group, off in WITHOUT_EFFECT.items():
        given = kwargs.get(group)
        if isinstance(given, Mapping) and isinstance(off, Mapping):
            for name, value in given.items():
                if not _is(value, off.get(name)):
                    yield f"{group}.{name}"
        elif not _is(given, off):
            yield group
    schedules = kwargs.get("schedules") or {}
    if not isinstance(schedules, Mapping):
        yield "schedules"
        return
    for field, ramp in schedules.items():
        values = ramp.values() if isinstance(ramp, Mapping) else [ramp]
        if any(value is not None for value in values):
            yield f"schedules.{field}"


def _is(value: Any, off: Any) -> bool:
    # Infinity may be a word: .inf or inf.
    return value is None or off in (..., value) or str(value).lstrip(".").lower() == str(off)


def _refuse_shared_statistics_on_cpus(cfg: DictConfig) -> None:
    """Refuse ``sync_batchnorm=true`` where PyTorch would when training starts.

    Without a process group it has no effect.
    """
    if not OmegaConf.select(cfg, "sync_batchnorm", default=False):
        return
    processes = len(cfg.devices) * cfg.get("num_nodes", 1)
    has_group = processes > 1 or str(cfg.strategy).startswith("ddp")
    if runs_on_cpu(cfg) and has_group:
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
