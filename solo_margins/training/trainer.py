"""Runs Lightning's trainer with the loggers, callbacks and folder of a configuration."""

import dataclasses
import importlib.util
import inspect
import math
import os
import warnings
from typing import Any

import lightning.pytorch as pl
from omegaconf import DictConfig, OmegaConf

from solo_margins.checkpoints import newest_checkpoint, read_settings, safe_loading
from solo_margins.cli import TrainingStopped, user_errors
from solo_margins.config import setting
from solo_margins.data.datamodule import RunData
from solo_margins.training import checkpointing
from solo_margins.training.callbacks import GradientNorm, ProgressBar, run_callbacks
from solo_margins.training.error_messages import run_errors
from solo_margins.training.interruption import InterruptGuard

# Arguments of the trainer that a configuration cannot set.
RESERVED = ("self", "logger", "callbacks", "enable_checkpointing")


def train(cfg: DictConfig, model: Any) -> checkpointing.Run:
    """Fit a model of a parsed configuration and return what it leaves behind."""
    with user_errors():
        data = RunData(cfg, pretraining="pretrained_feature_extractor" not in cfg)
        run = checkpointing.choose_run(cfg)
    with checkpointing.no_empty_folder(run), checkpointing.only_process_of(run):
        return _fit(cfg, model, data, run)


def _fit(cfg: DictConfig, model: Any, data: RunData, run: checkpointing.Run) -> checkpointing.Run:
    with user_errors():
        loggers = _loggers(cfg, run)
        batches = _batches_per_epoch(cfg, data)
        arguments = _trainer_arguments(cfg, batches)
        # The method's own come in by its configure_callbacks.
        guard = InterruptGuard()
        callbacks: list[Any] = [guard, GradientNorm(), *run_callbacks(cfg)]
        if cfg.checkpoint.enabled:
            callbacks.append(checkpointing.RunCheckpointer(cfg))
        if loggers:
            callbacks.append(pl.callbacks.LearningRateMonitor(logging_interval="step"))
        if arguments.get("enable_progress_bar", True):
            callbacks.append(ProgressBar(batches or 50))
        trainer: Any = pl.Trainer(
            **{"default_root_dir": str(run.folder), **arguments},
            logger=loggers or False,
            callbacks=callbacks,
            enable_checkpointing=False,
        )
    # Before Lightning does: whoever reads what is announced may send a signal at once.
    guard.setup(trainer, model, "fit")
    _announce(trainer, cfg, run)
    _announce_accumulation(trainer, cfg, model)
    try:
        # The ranks that Lightning starts take the name from here.
        os.environ.setdefault(checkpointing.RUN_ID_VARIABLE, run.name)
        with run_errors(trainer, data, run), safe_loading(), warnings.catch_warnings():
            # solo-learn's loaders pin memory wherever they are; without a GPU that has no effect.
            warnings.filterwarnings("ignore", message=".*pin_memory.*")
            # Lightning does not know loaders that find their place by themselves.
            warnings.filterwarnings("ignore", message=".*your dataloader is not resumable.*")
            trainer.fit(model, datamodule=data, ckpt_path=run.resumed_from)
            if run.resumed_from and data.val_dataloader() and not trainer.callback_metrics:
                # It was ended after its last step: nothing is left to train, but to measure.
                trainer.validate(model, datamodule=data, verbose=False)
    finally:
        os.environ.pop(checkpointing.RUN_ID_VARIABLE, None)
    last = getattr(checkpointing.checkpointer_of(trainer), "last_ckpt", None)
    checkpoint = last or newest_checkpoint(run.folder)
    for callback in trainer.callbacks:
        reason = getattr(callback, "stopped", None)
        if reason is not None:
            raise TrainingStopped(
                f"Stopped at step {trainer.global_step} by lens.on_collapse=stop: {reason}. "
                f"The last checkpoint is {checkpoint or 'none, checkpoint.enabled=false'}."
            )
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    return dataclasses.replace(run, checkpoint=checkpoint, metrics=metrics)


def _announce(trainer: Any, cfg: DictConfig, run: checkpointing.Run) -> None:
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
        f"images of its own batch, not among the {number * images} images of a step.",
        flush=True,
    )


def _loggers(cfg: DictConfig, run: checkpointing.Run) -> list[Any]:
    """Return the loggers of a run; each of them keeps what it wrote before a resume."""
    loggers: list[Any] = []
    if setting(cfg, "wandb.enabled", False):
        _require("wandb.enabled=true", "wandb")
        loggers.append(_wandb(cfg, run))
    if setting(cfg, "loggers.csv", True):
        loggers.append(checkpointing.csv_logger(run.folder))
    if setting(cfg, "loggers.tensorboard", False):
        _require("loggers.tensorboard=true", "tensorboard")
        logs = run.folder / "logs"
        loggers.append(pl.loggers.TensorBoardLogger(logs, name="tensorboard", version=""))
    return loggers


def _require(key: str, package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise ValueError(
            f"{key} needs {package}, which is not installed: run `pip install {package}`, or "
            '`pip install ".[loggers]"` in the folder of solo-margins.'
        )


def _wandb(cfg: DictConfig, run: checkpointing.Run) -> Any:
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
    arguments = {key: settings[key] for key in known if key in settings and key not in RESERVED}
    if arguments.get("log_every_n_steps") is None:
        # Lightning's default of 50 logs nothing at all of a shorter epoch.
        arguments["log_every_n_steps"] = min(50, batches)
    return arguments
