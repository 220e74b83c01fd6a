"""Checks that a run of a margin method trains with its margins."""

from typing import Any

import lightning.pytorch as pl

from solo_margins.losses.capture import last_step
from solo_margins.methods.variants import announce_default, settle_variant


class MarginLossNotCalledError(RuntimeError):
    """A training step did not call a loss with margins."""


class MarginRunCheck(pl.Callback):
    """Sets the variant of the run, and stops a run in which margins would have no effect.

    A subclass or a fork of solo-learn may compute its loss differently than the method expects. It
    would then train without margins but record them as used.
    """

    is_checked = False

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Set the variant in the configuration before it is recorded."""
        settle_variant(pl_module.cfg)
        announce_default(pl_module.cfg)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, index: int) -> None:
        """Wait for the loss of this batch."""
        last_step.called_margin_loss = False

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        """Check the first batch.

        Raises:
            MarginLossNotCalledError: no loss with margins was called.
        """
        if not self.is_checked and not last_step.called_margin_loss:
            raise MarginLossNotCalledError(
                f"method={pl_module.cfg.method}: the first training step did not call a loss with "
                "margins, so method_kwargs.margins would have no effect: check the training_step "
                f"of {type(pl_module).__module__}.{type(pl_module).__qualname__}."
            )
        self.is_checked = True

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Fail if there was no step; solo-learn's program would exit with code 0.

        Raises:
            ValueError: the batch is larger than the training data, so that none was complete.
        """
        if trainer.num_training_batches == 0 and trainer.limit_train_batches != 0:
            cfg = pl_module.cfg
            processes = f" times {trainer.world_size} processes" if trainer.world_size > 1 else ""
            raise ValueError(
                f"Nothing was trained: optimizer.batch_size={cfg.optimizer.batch_size}{processes} "
                f"exceeds the number of training images of data.train_path={cfg.data.train_path}."
            )
