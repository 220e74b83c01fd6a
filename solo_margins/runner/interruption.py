"""Ctrl-C during a training: finish the step, save, stop."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from solo_margins import host


class StopRequested(Exception):
    """Ends Lightning's loops after the checkpoint is written.

    Not a ``KeyboardInterrupt``: on that Lightning ends the process by itself.
    """


class InterruptGuard(host.pl.Callback):
    """Saves a checkpoint and stops the training at the first Ctrl-C, between two steps.

    In the middle of a step parameters, momentum network and counters do not belong together. A
    second Ctrl-C does not wait: it stops at once, without another checkpoint.

    Args:
        checkpointer: the host's checkpoint callback, or None where nothing is to be saved.
    """

    STEPS_BETWEEN_QUESTIONS = 10

    def __init__(self, checkpointer: Any | None) -> None:
        super().__init__()
        self.checkpointer = checkpointer
        self.is_requested = False
        self._process = os.getpid()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take Ctrl-C over while a training runs."""
        if threading.current_thread() is not threading.main_thread():
            # Only there does Python deliver signals.
            yield
            return
        before = signal.signal(signal.SIGINT, self._on_signal)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _on_signal(self, number: int, frame: Any) -> None:
        if os.getpid() != self._process:
            # A forked worker that loads data: the terminal sends Ctrl-C to it too, and the main
            # process still needs it for this step.
            return
        if self.is_requested:
            raise KeyboardInterrupt
        self.is_requested = True
        # print() may be in the middle of a write that this signal has interrupted.
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"\nStopping after this step.\n")

    def _everybody_stops(self, trainer: Any, step: int) -> bool:
        if trainer.world_size == 1:
            return self.is_requested
        # Saving needs all processes, and a signal may have reached one of them only. To ask the
        # others waits for the device, so not in every step.
        if step % self.STEPS_BETWEEN_QUESTIONS:
            return False
        return bool(trainer.strategy.reduce_boolean_decision(self.is_requested, all=False))

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, index: int) -> None:
        """Stop here: the last step is complete, with its momentum update."""
        if self._everybody_stops(trainer, index):
            self._save(trainer)
            raise StopRequested

    def on_validation_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, index: int, dataloader_idx: int = 0
    ) -> None:
        """Stop here too: a validation may take long."""
        if not trainer.sanity_checking and self._everybody_stops(trainer, index):
            self._forget_validation(trainer)
            self._save(trainer)
            raise StopRequested

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Save when a worker that loads data was ended by the same Ctrl-C."""
        if self.has_caused(exception) and trainer.world_size == 1:
            self._save(trainer)

    def has_caused(self, error: BaseException) -> bool:
        """Tell whether an error comes from a spawned worker that Ctrl-C has reached.

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
