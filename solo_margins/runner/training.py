"""Runs Lightning's trainer with the loggers, callbacks and folders of a configuration."""

from __future__ import annotations

import inspect
import math
import os
import signal
import warnings
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from solo_margins import host
from solo_margins.config import read
from solo_margins.host.checkpoint_files import remove_previous
from solo_margins.host.checkpoint_io import DirectCheckpointIO
from solo_margins.lens.callback import Lens
from solo_margins.lens.settings import LensSettings
from solo_margins.runner.callbacks import GradientNorm, ProgressBar
from solo_margins.runner.faults import SkippedImagesReport, faults_explained
from solo_margins.runner.interruption import InterruptGuard, StopRequested, requeue
from solo_margins.runner.nonfinite import GuardSettings, NonFiniteGuard
from solo_margins.runner.program import TrainingInterrupted, TrainingStopped, explained
from solo_margins.runner.repeatable import RepeatableBatches, RepeatableSteps
from solo_margins.runner.runs import RUN_ID_VARIABLE, Run, RunResult
from solo_margins.runner.settings import setting
from solo_margins.runner.writing import check_writable, explain_full_disk
from solo_margins.safe_loading import safe_loading

OURS = ("self", "logger", "callbacks", "enable_checkpointing")
"""Arguments of the trainer that a configuration cannot set."""

NOT_RESTORED_BY_DALI = (
    "DALI starts again with the order and augmentations of the first epoch, as solo-learn's "
    "pipelines cannot be continued: this run will not be the same as without the interruption."
)


def train(cfg: DictConfig, model: Any, data: dict[str, Any], run: Run) -> RunResult:
    """Fit a model and return what it leaves behind; see :func:`solo_margins.runner.pretrain`."""
    pl = host.pl
    with explained():
        check_writable(cfg, run)
        checkpointer = _checkpointer(cfg, run)
        guard = InterruptGuard(checkpointer)
        loggers = _loggers(cfg, run)
        batches = _batches_per_epoch(cfg, data)
        arguments = _trainer_arguments(cfg, batches)
        # The guard comes first: it must stop before anybody acts on the next batch.
        callbacks = [
            guard,
            _repeatable_steps(cfg, data),
            NonFiniteGuard(read(cfg, "numerics", GuardSettings), cfg.checkpoint.enabled),
            GradientNorm(),
            SkippedImagesReport(data, run.folder),
        ]
        if checkpointer is not None:
            callbacks.append(checkpointer)
        if loggers:
            callbacks.append(pl.callbacks.LearningRateMonitor(logging_interval="step"))
        lens = _lens(cfg, run)
        if lens is not None:
            callbacks.append(lens)
        if arguments.get("enable_progress_bar", True):
            callbacks.append(ProgressBar(batches or 50))
        trainer = pl.Trainer(
            **{"default_root_dir": str(run.folder), **arguments},
            logger=loggers or False,
            callbacks=callbacks,
            enable_checkpointing=False,
        )
    _announce(trainer, cfg, run)
    _announce_accumulation(trainer, cfg, model)
    try:
        faults = faults_explained(trainer, data)
        with guard.listening(trainer), faults, safe_loading(), warnings.catch_warnings():
            # The host's loaders pin memory wherever they are; without a GPU that has no effect.
            warnings.filterwarnings("ignore", message=".*pin_memory.*")
            # Lightning knows no loader that finds the place by itself.
            warnings.filterwarnings("ignore", message=".*your dataloader is not resumable.*")
            trainer.fit(model, **data, ckpt_path=run.resumed_from)
            if run.resumed_from is not None and not trainer.callback_metrics:
                # It was ended behind its last step: nothing is left to train, but to measure.
                _validate(trainer, model, data)
    except StopRequested:
        pass
    except SystemExit:
        # Lightning ends the process itself on the KeyboardInterrupt of a second Ctrl-C.
        if not guard.is_requested:
            raise
    except (OSError, RuntimeError) as error:
        explanation = explain_full_disk(error, run)
        if explanation is not None:
            raise explanation from error
        if not guard.has_caused(error):
            raise
    finally:
        os.environ.pop(RUN_ID_VARIABLE, None)
    checkpoint = getattr(checkpointer, "last_ckpt", None) or run.newest_checkpoint()
    if guard.is_requested or not trainer.state.finished:
        farewell = _farewell(checkpoint, cfg)
        if guard.signal == signal.SIGUSR1 and trainer.is_global_zero:
            farewell += f" {requeue()}"
        raise TrainingInterrupted(farewell, checkpoint, guard.signal or signal.SIGINT)
    if lens is not None and lens.stopped is not None:
        raise TrainingStopped(
            f"Stopped at step {trainer.global_step} by lens.on_collapse=stop: {lens.stopped}. "
            f"The last checkpoint is {checkpoint or 'none, checkpoint.enabled=false'}."
        )
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    if trainer.is_global_zero:
        remove_previous(run.folder)
        print(f"Checkpoint: {checkpoint or 'none, checkpoint.enabled=false'}")
        print(f"Logs: {run.folder / 'logs' if loggers else 'none'}")
    return RunResult(run.folder, checkpoint, metrics, run.resumed_from)


def _validate(trainer: Any, model: Any, data: dict[str, Any]) -> None:
    module = data.get("datamodule")
    images = data.get("val_dataloaders") if module is None else module.val_dataloader()
    if images is not None:
        trainer.validate(model, images, verbose=False)


def _repeatable_steps(cfg: DictConfig, data: dict[str, Any]) -> RepeatableSteps:
    batches = data.get("train_dataloaders")
    return RepeatableSteps(cfg.seed, batches if isinstance(batches, RepeatableBatches) else None)


def _announce(trainer: Any, cfg: DictConfig, run: Run) -> None:
    if not trainer.is_global_zero:
        return
    if run.resumed_from is not None:
        print(f"Continuing from {run.resumed_from}", flush=True)
        if cfg.data.format == "dali":
            print(NOT_RESTORED_BY_DALI, flush=True)
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


def _farewell(checkpoint: Path | None, cfg: DictConfig) -> str:
    if checkpoint is not None:
        return (
            f"Interrupted: the last checkpoint is {checkpoint}; the same command with "
            "auto_resume.enabled=true continues from it."
        )
    reason = "" if cfg.checkpoint.enabled else " (checkpoint.enabled=false)"
    return f"Interrupted: no checkpoint was saved{reason}."


def _lens(cfg: DictConfig, run: Run) -> Lens | None:
    settings = read(cfg, "lens", LensSettings)
    return Lens(settings, run.folder) if settings.enabled else None


def _checkpointer(cfg: DictConfig, run: Run) -> Any:
    if not cfg.checkpoint.enabled:
        return None
    return host.Checkpointer(
        cfg,
        logdir=run.folder.parent,
        frequency=cfg.checkpoint.frequency,
        keep_prev=cfg.checkpoint.keep_prev,
    )


def _loggers(cfg: DictConfig, run: Run) -> list[Any]:
    """Return the loggers of a run; each of them keeps what it wrote before a resume."""
    logs = run.folder / "logs"
    found: list[Any] = []
    if setting(cfg, "wandb.enabled", False):
        found.append(_wandb(cfg, run))
    if setting(cfg, "loggers.csv", True):
        found.append(host.pl.loggers.CSVLogger(logs, name="", flush_logs_every_n_steps=10))
    if setting(cfg, "loggers.tensorboard", False):
        try:
            found.append(host.pl.loggers.TensorBoardLogger(logs, name="tensorboard", version=""))
        except ModuleNotFoundError:
            raise ValueError(
                "loggers.tensorboard=true needs TensorBoard, which is not installed: run "
                '`pip install tensorboard`, or `pip install ".[loggers]"` in the folder of '
                "solo-margins."
            ) from None
    return found


def _wandb(cfg: DictConfig, run: Run) -> Any:
    try:
        logger = host.pl.loggers.WandbLogger(
            name=cfg.name,
            project=cfg.wandb.project,
            entity=cfg.wandb.entity,
            offline=cfg.wandb.offline,
            save_dir=str(run.folder),
            # The same id as the folder's, so that a resumed run goes on in the same W&B run.
            id=run.name,
            resume="allow",
        )
    except ModuleNotFoundError:
        raise ValueError(
            "wandb.enabled=true needs Weights & Biases, which is not installed: run "
            '`pip install wandb`, or `pip install ".[loggers]"` in the folder of solo-margins.'
        ) from None
    logger.log_hyperparams(OmegaConf.to_container(cfg, resolve=True))
    return logger


def _batches_per_epoch(cfg: DictConfig, data: dict[str, Any]) -> int | None:
    """Return the number of training batches in an epoch, where it is known beforehand."""
    loader = data.get("train_dataloaders")
    if loader is None:
        return None
    limit = setting(cfg, "limit_train_batches", 1.0)
    batches = int(len(loader) * limit) if isinstance(limit, float) else min(len(loader), limit)
    return max(1, math.ceil(batches / max(1, len(cfg.devices))))


def _trainer_arguments(cfg: DictConfig, batches: int | None) -> dict[str, Any]:
    """Return every setting of the configuration that is an argument of Lightning's trainer."""
    known = inspect.signature(host.pl.Trainer.__init__).parameters
    settings: Any = OmegaConf.to_container(cfg, resolve=True)
    arguments = {name: settings[name] for name in known if name in settings and name not in OURS}
    if arguments.get("log_every_n_steps") is None and batches is not None:
        # Lightning's default of 50 logs nothing at all of a shorter epoch.
        arguments["log_every_n_steps"] = min(50, batches)
    if str(arguments.get("strategy") or "auto").startswith(("auto", "ddp")):
        # Others have ways of their own to write a state that is spread over processes.
        arguments["plugins"] = [*(arguments.get("plugins") or []), DirectCheckpointIO()]
    return arguments
