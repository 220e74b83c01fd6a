"""Ctrl-C, SIGTERM and Slurm's signal during a run: finish the step, save, stop."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.plugins.environments import SLURMEnvironment
from omegaconf import DictConfig

from solo_margins.cli import TrainingInterrupted
from solo_margins.config import setting
from solo_margins.same_run import CONTINUED_FROM
from solo_margins.training.checkpointing import checkpointer_of


class InterruptGuard(pl.Callback):
    """Saves a checkpoint and stops the run at the first signal, between two steps.

    In the middle of a step parameters, momentum network and counters do not belong together. A
    second Ctrl-C does not wait: it stops at once, without another checkpoint.
    """

    STEPS_BETWEEN_QUESTIONS = 10

    def __init__(self) -> None:
        super().__init__()
        # The signal that the run is to stop for, if there was one.
        self.signal: int | None = None
        self._process = os.getpid()
        self._trainer: Any = None
        # Handlers of the signals during the run, by their number.
        self._handlers: dict[int, Any] = {}

    @contextlib.contextmanager
    def handling_signals(self, trainer: Any) -> Iterator[None]:
        """Handle signals for as long as the block runs, then leave them to whoever had them."""
        self._trainer = trainer
        numbers: list[int] = []
        # Python delivers signals to the main thread only.
        if threading.current_thread() is threading.main_thread():
            numbers = [signal.SIGINT, signal.SIGTERM]
            if _is_requeued_by_slurm():
                numbers.append(signal.SIGUSR1)
        before = {number: signal.getsignal(number) for number in numbers}
        for number, handler in before.items():
            # A launcher that handles SIGTERM itself knows better.
            is_ours = number == signal.SIGINT or handler == signal.SIG_DFL
            self._handlers[number] = self._on_signal if is_ours else handler
        self._install(self._handlers)
        try:
            yield
        finally:
            self._install(before)

    @staticmethod
    def _install(handlers: dict[int, Any]) -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        """Take SIGTERM back from Lightning; see `on_train_start`."""
        self._install(self._handlers)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Take SIGTERM back from Lightning.

        Lightning puts a handler of its own before ours when it begins to run. That would talk to
        the other ranks in the middle of a step and end the run without a checkpoint. Lightning
        has no setting against it, and gives the signals back in the end.
        """
        self._install(self._handlers)

    def _on_signal(self, number: int, frame: Any) -> None:
        if os.getpid() != self._process:
            # A forked worker that loads data: the whole group was signalled, and the main process
            # still needs it for this step. The next SIGTERM is that of the main process.
            if number == signal.SIGTERM:
                signal.signal(number, signal.SIG_DFL)
            return
        if self.signal is not None:
            if number == signal.SIGINT:
                raise self._interrupted(self._trainer)
            return
        self.signal = number
        # print() may be in the middle of a write that this signal has interrupted.
        os.write(
            sys.__stderr__.fileno() if sys.__stderr__ else 2,
            b"\nStopping after this step; Ctrl-C stops at once.\n",
        )

    def _everybody_stops(self, trainer: Any, step: int) -> bool:
        if trainer.world_size > 1 and step % self.STEPS_BETWEEN_QUESTIONS == 0:
            # Saving needs all ranks, and a signal may have reached one of them only. To ask the
            # others waits for the device, so not in every step.
            own = torch.tensor(self.signal or 0, device=trainer.strategy.root_device)
            self.signal = int(trainer.strategy.reduce(own, reduce_op="max")) or None
            return self.signal is not None
        return trainer.world_size == 1 and self.signal is not None

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, index: int) -> None:
        """Stop here: the last step is complete, with its momentum update."""
        step, accumulated = divmod(index, trainer.accumulate_grad_batches)
        # Gradients that wait for further batches are in no checkpoint.
        if not accumulated and self._everybody_stops(trainer, step):
            self._stop(trainer)

    def on_validation_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, index: int, dataloader_idx: int = 0
    ) -> None:
        """Stop here too: a validation may take long."""
        trained = trainer.fit_loop.batch_idx + 1
        is_between_steps = trained % trainer.accumulate_grad_batches == 0 or trainer.is_last_batch
        if trainer.sanity_checking or not is_between_steps:
            return
        if self._everybody_stops(trainer, index):
            self._forget_validation(trainer)
            self._stop(trainer)

    def _stop(self, trainer: Any) -> None:
        checkpointer = checkpointer_of(trainer)
        if checkpointer is not None:
            checkpointer.save(trainer, suffix="-interrupted")
        raise self._interrupted(trainer)

    def _interrupted(self, trainer: Any) -> TrainingInterrupted:
        """Say how to continue, and return what ends the program."""
        checkpointer = checkpointer_of(trainer)
        checkpoint = None
        if checkpointer is None:
            sentence = "Interrupted: no checkpoint was saved (checkpoint.enabled=false)."
        elif checkpointer.last_ckpt is None:
            sentence = "Interrupted: no checkpoint was saved."
        else:
            checkpoint = checkpointer.last_ckpt
            sentence = (
                f"Interrupted: the last checkpoint is {checkpoint}; the same command with "
                f"{_change_to_continue(checkpointer.cfg, checkpoint)} continues from it."
            )
        if trainer.is_global_zero:
            if self.signal == signal.SIGUSR1:
                sentence = f"{sentence} {_requeue()}"
            _end_progress_bar(trainer)
            # Another bar than that may not have ended its line.
            print(f"\n{sentence}", file=sys.stderr, flush=True)
        return TrainingInterrupted(sentence, checkpoint, self.signal or signal.SIGINT)

    @staticmethod
    def _forget_validation(trainer: Any) -> None:
        """Let a resumed run go on after the validation.

        It would otherwise validate on the remaining batches alone and log that as the accuracy.
        """
        progress = trainer.fit_loop.epoch_loop.val_loop.batch_progress
        for counts in (progress.total, progress.current):
            counts.ready = counts.started = counts.processed = counts.completed


def _end_progress_bar(trainer: Any) -> None:
    """Let the progress bar draw itself for the last time, lest it does so below the last line."""
    bar = trainer.progress_bar_callback
    if isinstance(bar, pl.callbacks.TQDMProgressBar):
        for name in ("train_progress_bar", "val_progress_bar"):
            # Lightning raises it where a bar was not made yet.
            with contextlib.suppress(TypeError):
                getattr(bar, name).close()


def _change_to_continue(cfg: DictConfig, checkpoint: Path) -> str:
    """Return what to add to the command of a run, so that it goes on from its last checkpoint."""
    if setting(cfg, CONTINUED_FROM) is not None:
        # Auto-resume alone would look for a run that was trained from the beginning.
        return f"resume_from_checkpoint={checkpoint} run_id={checkpoint.parent.name}"
    if setting(cfg, "resume_from_checkpoint") is not None:
        return "auto_resume.enabled=true resume_from_checkpoint=null"
    return "auto_resume.enabled=true"


def _is_requeued_by_slurm() -> bool:
    """Tell whether Lightning would put this job into Slurm's queue again after SIGUSR1."""
    return bool(SLURMEnvironment.detect())


def _requeue() -> str:
    """Put the Slurm job of this process into the queue again and say how that went."""
    job = os.environ["SLURM_JOB_ID"]
    if "SLURM_ARRAY_JOB_ID" in os.environ:
        job = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    try:
        code = subprocess.call(["scontrol", "requeue", job])
    except OSError as error:
        return f"Slurm's job {job} could not be queued again: {error.strerror}."
    failure = f"could not be queued again: scontrol ended with code {code}"
    return f"Slurm's job {job} {failure if code else 'is queued again'}."
