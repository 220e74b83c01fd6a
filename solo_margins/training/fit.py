"""Runs Lightning's trainer with the loggers, callbacks and folder of a configuration."""

import dataclasses
import errno
import importlib.util
import inspect
import math
import os
import re
import signal
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from omegaconf import DictConfig, OmegaConf

from solo_margins.checkpoints import newest_checkpoint, read_settings, reason_of, safe_loading
from solo_margins.cli import TrainingStopped
from solo_margins.config import read, setting
from solo_margins.data.datamodule import RunData
from solo_margins.lens import Lens
from solo_margins.training.callbacks import ClosingReport, GradientNorm, ProgressBar, SeededSteps
from solo_margins.training.checkpointing import RunCheckpointer, checkpointer_of
from solo_margins.training.interruption import InterruptGuard
from solo_margins.training.known_keys import CHOSEN_BY_US
from solo_margins.training.nonfinite import GuardSettings, NonFiniteGuard
from solo_margins.training.run_folder import RUN_ID_VARIABLE, Run, held_folder

# What the system says of a disk that takes no more.
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def fit(
    cfg: DictConfig,
    model: pl.LightningModule,
    data: RunData,
    run: Run,
    classifier: str,
    callbacks: Sequence[pl.Callback] = (),
) -> Run:
    """Fit a model of a parsed configuration and return what it leaves behind.

    Args:
        cfg: the parsed configuration.
        model: a method, or a linear classifier.
        data: its images.
        run: where it is, see `solo_margins.training.run_folder.choose_run`.
        classifier: what ``val_acc1`` is the accuracy of, for the report at the end.
        callbacks: of Lightning, besides those of the configuration.
    """
    guard = InterruptGuard()
    with held_folder(run):
        trainer = _trainer(cfg, data, run, guard, classifier, callbacks)
        # Before Lightning does: whoever reads what is announced may send a signal at once.
        with guard.handling_signals(trainer):
            _announce(trainer, cfg, run)
            _announce_accumulation(trainer, cfg, model)
            # The ranks that Lightning starts take the name from here.
            os.environ.setdefault(RUN_ID_VARIABLE, run.name)
            try:
                _run(trainer, model, data, run)
            finally:
                os.environ.pop(RUN_ID_VARIABLE, None)
    return _outcome(trainer, run)


def _trainer(
    cfg: DictConfig,
    data: RunData,
    run: Run,
    guard: InterruptGuard,
    classifier: str,
    further: Sequence[pl.Callback],
) -> pl.Trainer:
    """Return the trainer of a run with all its callbacks, but for those that a method brings."""
    loggers = _loggers(cfg, run)
    batches = _batches_per_epoch(cfg, data)
    arguments = _trainer_arguments(cfg, batches)
    # The guard comes first: it stops before anybody sees the next batch.
    callbacks: list[Any] = [guard, GradientNorm(), *further]
    if cfg.checkpoint.enabled:
        callbacks.append(RunCheckpointer(cfg, run))
    if loggers:
        callbacks.append(pl.callbacks.LearningRateMonitor(logging_interval="step"))
    if arguments.get("enable_progress_bar", True):
        callbacks.append(ProgressBar(batches))
    guard_settings = read(cfg, "numerics", GuardSettings)
    callbacks.append(NonFiniteGuard(guard_settings, saves_state=cfg.checkpoint.enabled))
    callbacks.append(SeededSteps(cfg.seed))
    callbacks.append(ClosingReport(classifier))
    arguments.setdefault("default_root_dir", str(run.folder))
    return pl.Trainer(
        **arguments, logger=loggers or False, callbacks=callbacks, enable_checkpointing=False
    )


def _run(trainer: Any, model: Any, data: RunData, run: Run) -> None:
    """Train, and end the other ranks where this one fails."""
    try:
        with safe_loading(), warnings.catch_warnings():
            # solo-learn's loaders pin memory wherever they are; without a GPU that has no effect.
            warnings.filterwarnings("ignore", message=".*pin_memory.*")
            # Lightning does not know loaders that find their place by themselves.
            warnings.filterwarnings("ignore", message=".*your dataloader is not resumable.*")
            # From here on Lightning calls the model's hooks, such as training_step.
            trainer.fit(model, datamodule=data, ckpt_path=run.resumed_from)
            if run.resumed_from and data.val_dataloader() and not trainer.callback_metrics:
                # It was ended after its last step: nothing is left to train, but to measure.
                trainer.validate(model, datamodule=data, verbose=False)
    except TrainingStopped:
        # All ranks have stopped.
        raise
    except Exception as error:
        _end_other_ranks(trainer)
        cause = _cause_outside(error, run.folder)
        if cause is None:
            raise
        raise cause from error


def _end_other_ranks(trainer: Any) -> None:
    """End the ranks that this process has started: they wait for a step that will never come."""
    kill = getattr(trainer.strategy.launcher, "kill", None)
    if trainer.world_size > 1 and trainer.is_global_zero and kill is not None:
        kill(signal.SIGKILL)


def _cause_outside(error: BaseException | None, folder: Path) -> ValueError | None:
    """Return an error of one sentence where another rank or a full disk has ended the run.

    Where a disk is full, more than one thing fails, one while the other is handled.
    """
    if re.search("Connection (closed|reset) by peer", str(error)):
        return ValueError("Another rank exited; see its output.")
    full = None
    while error is not None:
        if isinstance(error, TrainingStopped):
            return error
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            full = error
        error = error.__cause__ or error.__context__
    if full is None:
        return None
    where = f"{full.filename} cannot be written: " if full.filename else ""
    newest = newest_checkpoint(folder) or "none"
    return ValueError(f"{where}{reason_of(full)}. The last good checkpoint is {newest}.")


def _outcome(trainer: Any, run: Run) -> Run:
    """Return what a run leaves behind, or raise where the lens has stopped it."""
    checkpointer = checkpointer_of(trainer)
    checkpoint = None if checkpointer is None else checkpointer.last_ckpt
    checkpoint = checkpoint or newest_checkpoint(run.folder)
    for callback in trainer.callbacks:
        if isinstance(callback, Lens) and callback.stopped is not None:
            raise TrainingStopped(
                f"Stopped at step {trainer.global_step} by lens.on_collapse=stop: "
                f"{callback.stopped}. "
                f"The last checkpoint is {checkpoint or 'none, checkpoint.enabled=false'}."
            )
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    return dataclasses.replace(run, checkpoint=checkpoint, metrics=metrics)


def in_memory_format(model: pl.LightningModule, cfg: DictConfig) -> pl.LightningModule:
    """Return a model in the memory layout that trains fastest."""
    for parameter in model.parameters():
        # As distributed training expects.
        parameter.data = parameter.data.contiguous()
    if not cfg.performance.disable_channel_last:
        model = model.to(memory_format=torch.channels_last)
    return model


def _announce(trainer: Any, cfg: DictConfig, run: Run) -> None:
    if not trainer.is_global_zero:
        return
    if run.resumed_from is not None:
        print(f"Continuing from {run.resumed_from}", flush=True)
    elif cfg.auto_resume.enabled:
        print("No earlier run with these settings was found: starting a new one.", flush=True)
    print(f"Run: {run.folder}", flush=True)


def _announce_accumulation(trainer: Any, cfg: DictConfig, model: Any) -> None:
    """Say what accumulated batches do not bring, where a user may count on it."""
    number = trainer.accumulate_grad_batches
    has_negatives = getattr(model, "has_negatives", False) and model.in_batch_negatives
    if number == 1 or not has_negatives or not trainer.is_global_zero:
        return
    images = cfg.optimizer.batch_size * trainer.world_size
    print(
        f"accumulate_grad_batches={number}: an image's negatives are those among the {images} "
        f"images of its own batch, not among the {number * images} images of a step. More negatives"
        " in the same memory: a larger optimizer.batch_size with method_kwargs.simulated_ranks.",
        flush=True,
    )


def _loggers(cfg: DictConfig, run: Run) -> list[Any]:
    """Return the loggers of a run; each of them keeps what it wrote before a resume."""
    loggers: list[Any] = []
    logs = run.folder / "logs"
    if setting(cfg, "wandb.enabled", False):
        _require("wandb.enabled=true", "wandb")
        loggers.append(_wandb(cfg, run))
    if setting(cfg, "loggers.csv", True):
        # Each resumed part has a file of its own.
        loggers.append(pl.loggers.CSVLogger(logs, name="", flush_logs_every_n_steps=10))
    if setting(cfg, "loggers.tensorboard", False):
        _require("loggers.tensorboard=true", "tensorboard")
        loggers.append(pl.loggers.TensorBoardLogger(logs, name="tensorboard", version=""))
    return loggers


def _require(key: str, package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise ValueError(
            f"{key} needs {package}, which is not installed: run `pip install {package}`, or "
            '`pip install ".[loggers]"` in the folder of solo-margins.'
        )


def _wandb(cfg: DictConfig, run: Run) -> Any:
    logger = pl.loggers.WandbLogger(
        name=cfg.name,
        project=cfg.wandb.project,
        entity=cfg.wandb.entity,
        offline=cfg.wandb.offline,
        save_dir=str(run.folder),
        # A resumed run goes on in the same W&B run; folders elsewhere may have the same name.
        id=setting(read_settings(run.folder) or cfg, "wandb_run_id") if run.goes_on else None,
        resume="allow",
    )
    settings: Any = OmegaConf.to_container(cfg, resolve=True)
    logger.log_hyperparams(settings)
    return logger


def _batches_per_epoch(cfg: DictConfig, data: RunData) -> int:
    """Return the number of training batches in an epoch of one rank."""
    loader = data.train_dataloader()
    limit = setting(cfg, "limit_train_batches", 1.0)
    batches = int(len(loader) * limit) if isinstance(limit, float) else min(len(loader), limit)
    return max(1, math.ceil(batches / max(1, len(cfg.devices))))


def _trainer_arguments(cfg: DictConfig, batches: int) -> dict[str, Any]:
    """Return every setting of the configuration that is an argument of Lightning's trainer."""
    known = inspect.signature(pl.Trainer.__init__).parameters
    settings: Any = OmegaConf.to_container(cfg, resolve=True)
    arguments = {key: settings[key] for key in known if key in settings and key not in CHOSEN_BY_US}
    if arguments.get("log_every_n_steps") is None:
        # Lightning's default of 50 logs nothing at all of a shorter epoch.
        arguments["log_every_n_steps"] = min(50, batches)
    if cfg.accelerator == "cpu":
        # Of CPU processes Lightning wants the number, of GPUs the list.
        arguments["devices"] = len(cfg.devices)
    return arguments
