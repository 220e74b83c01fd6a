"""Pretraining as a function of a configuration: it is checked once, then built, then fitted."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import lightning.pytorch as pl
from omegaconf import DictConfig
from solo.args.pretrain import parse_cfg

from solo_margins.config import setting
from solo_margins.data.datamodule import RunData
from solo_margins.registry import method_class
from solo_margins.training.checked_config import checked_pretraining
from solo_margins.training.continuing import note_checkpoint
from solo_margins.training.fit import fit, in_memory_format
from solo_margins.training.results_log import recorded
from solo_margins.training.run_folder import Run, choose_run, data_and_variant


def pretrain(cfg: DictConfig, callbacks: Sequence[pl.Callback] = ()) -> Run:
    """Pretrain a backbone and return where its checkpoint is and how it did.

    Args:
        cfg: a pretraining configuration with solo-learn's keys, of one of our methods. Read besides
            them, all optional: ``run_id`` (name of the run's folder in
            ``<checkpoint.dir>/<method>/``; by default after ``name``, with a number where that is
            taken), ``loggers.csv`` (true), ``loggers.tensorboard`` (false), ``results`` (a file
            that a finished run adds a line to, see `solo_margins.results`), ``skip_finished``
            (true: a run that is in that file is not run again), and every argument of Lightning's
            ``Trainer``.
        callbacks: of Lightning, besides those of the configuration. One that ends the run leaves
            the checkpoint of the last epoch that ``checkpoint.frequency`` has saved.

    Raises:
        ValueError: the configuration cannot be run; the message is one sentence that says why.
        TrainingStopped: the run cannot succeed; a ValueError, too.
        TrainingInterrupted: Ctrl-C or SIGTERM; it carries the checkpoint that was saved.
    """
    cfg = checked_pretraining(cfg)
    note_checkpoint(cfg, _completed)
    return recorded("pretrain", partial(_build_and_fit, callbacks=callbacks), cfg)


def _completed(cfg: DictConfig) -> DictConfig:
    """Return a checked configuration as solo-learn and the method complete it."""
    cfg = parsed_pretraining(cfg)
    method_class(cfg.method).read_settings(cfg)
    return cfg


def _build_and_fit(cfg: DictConfig, callbacks: Sequence[pl.Callback]) -> Run:
    cfg = parsed_pretraining(cfg)
    pl.seed_everything(cfg.seed, workers=True)
    model = build_method(cfg)
    data = RunData(cfg, pretraining=True)
    unnamed = "-".join([*data_and_variant(cfg), f"seed{cfg.seed}"])
    run = choose_run(cfg, kind=cfg.method, unnamed=unnamed)
    return fit(cfg, model, data, run, "Online classifier", callbacks)


def parsed_pretraining(cfg: DictConfig) -> DictConfig:
    """Return a checked configuration as solo-learn completes it: crops counted, rates scaled."""
    classes = setting(cfg, "data.num_classes")
    cfg = parse_cfg(cfg)
    if classes is not None:
        # solo-learn counts empty and hidden folders, too.
        cfg.data.num_classes = classes
    crops = cfg.data.num_large_crops
    if crops != 2 and method_class(cfg.method).compares_two_crops:
        raise ValueError(
            f"The method {cfg.method!r} compares 2 large crops, but augmentations make {crops}: "
            "check num_crops of the views."
        )
    return cfg


def build_method(cfg: DictConfig) -> Any:
    """Return the method of a parsed configuration: a class of ``solo_margins/methods``."""
    return in_memory_format(method_class(cfg.method)(cfg), cfg)
