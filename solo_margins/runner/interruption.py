"""Ctrl-C and SIGTERM during a training: finish the step, save, stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from solo_margins import host


class StopRequested(Exception):
    """Ends Lightning's loops after the checkpoint is written.

    Not a ``KeyboardInterrupt``: on that Lightning ends the process by itself.
    """


class InterruptGuard(host.pl.Callback):
    """Saves a checkpoint and stops the training at the first signal, between two steps.

    In the middle of a step parameters, momentum network and counters do not belong together. A
    second Ctrl-C does not wait: it stops at once, without another checkpoint.

    Args:
        checkpointer: the host's checkpoint callback, or None where nothing is to be saved.
    """

    STEPS_BETWEEN_QUESTIONS = 10

    def __init__(self, checkpointer: Any | None) -> None:
        super().__init__()
        self.checkpointer = checkpointer
        self.signal: int | None = None
        """The signal that the training is to stop for, if there was one."""
        self._process = os.getpid()

    @property
    def is_requested(self) -> bool:
        """Whether the training is to stop."""
        return self.signal is not None

    @contextmanager
    def listening(self, trainer: Any) -> Iterator[None]:
        """Take signals over while a training runs."""
        if threading.current_thread() is not threading.main_thread():
            # Only there does Python deliver signals.
            yield
            return
        # Lightning's own handlers end the training, or save it, in the middle of a step.
        trainer._signal_connector.register_signal_handlers = lambda: None
        before = {signal.SIGINT: signal.signal(signal.SIGINT, self._on_signal)}
        others = [signal.SIGTERM, *([signal.SIGUSR1] if is_requeued_by_slurm(trainer) else [])]
        for number in others:
            # A launcher that handles it itself knows better.
            if signal.getsignal(number) == signal.SIG_DFL:
                before[number] = signal.signal(number, self._on_signal)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: Any) -> None:
        if os.getpid() != self._process:
            # A forked worker that loads data: the whole group was signalled, and the main process
            # still needs it for this step. The next SIGTERM is that of the main process.
            if number == signal.SIGTERM:
                signal.signal(number, signal.SIG_DFL)
            return
        if self.is_requested:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return
        self.signal = number
        # print() may be in the middle of a write that this signal has interrupted.
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"\nStopping after this step.\n")

    def _everybody_stops(self, trainer: Any, step: int) -> bool:
        if trainer.world_size > 1 and step % self.STEPS_BETWEEN_QUESTIONS == 0:
            # Saving needs all processes, and a signal may have reached one of them only. To ask
            # the others waits for the device, so not in every step.
            own = torch.tensor(self.signal or 0, device=trainer.strategy.root_device)
            self.signal = int(trainer.strategy.reduce(own, reduce_op="max")) or None
            return self.is_requested
        return trainer.world_size == 1 and self.is_requested

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, index: int) -> None:
        """Stop here: the last step is complete, with its momentum update."""
        step, accumulated = divmod(index, trainer.accumulate_grad_batches)
        # Gradients that wait for further batches are in no checkpoint.
        if not accumulated and self._everybody_stops(trainer, step):
            self._save(trainer)
            raise StopRequested

    def on_validation_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, index: int, dataloader_idx: int = 0
    ) -> None:
        """Stop here too: a validation may take long."""
        if trainer.sanity_checking or trainer.fit_loop._should_accumulate():
            return
        if self._everybody_stops(trainer, index):
            self._forget_validation(trainer)
            self._save(trainer)
            raise StopRequested

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Save when a worker that loads data was ended by the same Ctrl-C."""
        if self.has_caused(exception) and trainer.world_size == 1:
            self._save(trainer)

    def has_caused(self, error: BaseException) -> bool:
        """Tell whether an error comes from a spawned worker that the signal has reached.

        It is raised while the training waits for a batch, that is between two steps.
        """
        return self.is_requested and "DataLoader worker" in str(error)

    def _save(self, trainer: Any) -> None:
        if self.checkpointer is not None and getattr(self.checkpointer, "path", None):
            self.checkpointer.save(trainer, suffix="-interrupted")

    @staticmethod
    def _forget_validation(trainer: Any) -> None:
        """Let a resumed run go on behind the validation.

        It would otherwise validate on the remaining batches alone and log that as the accuracy.
        """
        progress = trainer.fit_loop.epoch_loop.val_loop.batch_progress
        for counts in (progress.total, progress.current):
            counts.ready = counts.started = counts.processed = counts.completed


def outlive_the_groups_signals(worker: int) -> None:
    """Let a worker that loads data go on when all processes of a training are signalled at once.

    The main process needs it for the step that it finishes before it stops. A second SIGTERM is
    that of the main process, which ends workers that do not end by themselves.
    """
    heard: list[int] = []

    def obey_the_second(number: int, frame: Any) -> None:
        if heard:
            os._exit(0)
        heard.append(number)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, obey_the_second)


def is_requeued_by_slurm(trainer: Any) -> bool:
    """Tell whether Lightning would put this job into Slurm's queue again after SIGUSR1."""
    environment = trainer._accelerator_connector.cluster_environment
    is_slurm = type(environment).__name__ == "SLURMEnvironment"
    return is_slurm and bool(environment.auto_requeue)


def requeue() -> str:
    """Put the Slurm job of this process into the queue again and say how that went."""
    job = os.environ["SLURM_JOB_ID"]
    if "SLURM_ARRAY_JOB_ID" in os.environ:
        job = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    try:
        code = subprocess.call(["scontrol", "requeue", job])
    except OSError as error:
        return f"Slurm's job {job} could not be queued again: {error.strerror}."
    return (
        f"Slurm's job {job} is queued again."
        if code == 0
        else f"Slurm's job {job} could not be queued again: scontrol ended with code {code}."
    )
