"""The first momentum update after resuming uses the initial tau, not the scheduled one."""

from typing import Any

from solo_margins.host.changes import Wrap


def take_up_momentum(original: Any, self: Any) -> None:
    """Continue the schedule of tau of a resumed run."""
    original(self)
    self.last_step = self.trainer.global_step
    if self.last_step > 0:
        self.momentum_updater.update_tau(
            cur_step=self.last_step, max_steps=self.trainer.estimated_stepping_batches
        )


CHANGES = (Wrap("methods.base", "BaseMomentumMethod.on_train_start", take_up_momentum),)
