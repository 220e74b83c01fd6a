"""Makes sure that a margin method's training step calls a loss with margins."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import lightning.pytorch as pl

from solo_margins.losses._observation import Seen, observing


class MarginLossNotCalledError(RuntimeError):
    """A training step went past the loss with margins; the message is one sentence."""


class MarginLossCheck(pl.Callback):
    """Stops training before the first update if no loss with margins was called.

    A subclass or a fork of solo-learn may compute its loss in another way than the method expects;
    it would then train without margins and record them as used.
    """

    def __init__(self) -> None:
        super().__init__()
        self._capture: ExitStack | None = ExitStack()
        self._compared: list[Seen] = []

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, index: int) -> None:
        """Begin to listen at the first batch."""
        if self._capture is not None:
            self._capture.close()
            self._compared = self._capture.enter_context(observing())

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        """Check what the first batch compared, and be done.

        Raises:
            MarginLossNotCalledError: no loss with margins was called.
        """
        if self._capture is None:
            return
        self._capture.close()
        self._capture = None
        if not self._compared:
            raise MarginLossNotCalledError(
                f"method={pl_module.cfg.method}: the first training step did not call a loss with "
                "margins, so method_kwargs.margins would have no effect: check the training step "
                f"of {type(pl_module).__module__}.{type(pl_module).__qualname__}."
            )
        self._compared = []

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Stop listening."""
        if self._capture is not None:
            self._capture.close()
