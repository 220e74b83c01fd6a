"""Pretraining and linear probing as functions of a configuration, with either solo-learn.

``main_pretrain.py`` and ``main_linear.py`` are thin programs on top of them. Nothing heavy is
imported before a function is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from solo_margins import registry
from solo_margins.cli import SetupError, TrainingInterrupted, user_errors

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from solo_margins.training.checkpointing import Run

__all__ = ["SetupError", "TrainingInterrupted", "linear", "pretrain"]


def pretrain(cfg: DictConfig) -> Run:
    """Pretrain a backbone and return where its checkpoint is and how it did.

    Args:
        cfg: a pretraining configuration with solo-learn's keys. Read besides them, all optional:
            ``run_id`` (name of the run's folder in ``<checkpoint.dir>/<method>/``; by default after
            ``name``, with a number where that is taken), ``loggers.csv`` (true),
            ``loggers.tensorboard`` (false), ``results`` (a file that a finished run adds a line to,
            see :mod:`solo_margins.results`), ``skip_finished`` (true: a run that is in that file
            is not run again), and every argument of Lightning's ``Trainer``.

    Raises:
        SetupError: the configuration cannot be run; the message says what is wrong.
        TrainingInterrupted: Ctrl-C or SIGTERM; it carries the checkpoint that was saved.
    """
    return _programs().run(cfg)


def linear(cfg: DictConfig) -> Run:
    """Train a linear classifier on a pretrained backbone and return its validation accuracy.

    Args:
        cfg: a linear configuration with solo-learn's keys. ``pretrained_feature_extractor`` names
            a checkpoint or the folder of its run; what the configuration leaves open of
            ``backbone``, ``pretrain_method``, ``data`` and ``data.augmentations`` is taken from
            the ``args.json`` beside it. The optional keys of :func:`pretrain` are read here too.

    Raises:
        SetupError: the configuration cannot be run; the message says what is wrong.
        TrainingInterrupted: Ctrl-C or SIGTERM; it carries the checkpoint that was saved.
    """
    return _programs().run(cfg)


def _programs() -> Any:
    with user_errors():
        registry.register()
        from solo_margins.training import programs
    return programs
