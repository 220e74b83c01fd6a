"""A training step makes the host wait for the device no more often than solo-learn's own does."""

from collections import Counter

import lightning.pytorch as pl
import pytest
from launches import Launches
from method_parents import PARENTS

pytestmark = pytest.mark.repository
ALL_MARGINS = [
    "method_kwargs.margins.angular=0.2",
    "method_kwargs.margins.subtractive=0.1",
    "method_kwargs.margins.positive_scale=2",
    "method_kwargs.margins.curvature=1.5",
]


class Waits(pl.Callback):
    """Counts what waits in training steps, from the batch to the gradient."""

    def __init__(self):
        self.counted = Launches()
        self.waits = []

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        self.counted = Launches()
        self.counted.__enter__()

    def on_after_backward(self, trainer, module):
        self.counted.__exit__(None, None, None)
        self.waits.append(self.counted.waits)


def waits_of_last_step(train, method, *settings):
    watching = Waits()
    train(method, *settings, callbacks=[watching])
    return watching.waits[-1]


def test_a_step_waits_no_more_often_than_the_parents(train, any_method):
    parent, settings = PARENTS[any_method]
    ours = waits_of_last_step(train, any_method, *settings, *ALL_MARGINS)
    assert ours - waits_of_last_step(train, parent, *settings) == Counter()


def test_schedules_and_polarization_add_no_waits(train):
    """A temperature that follows the positives stays on the device."""
    ours = waits_of_last_step(
        train,
        "simclr_margin",
        "method_kwargs.schedules.temperature.kind=alignment",
        "method_kwargs.polarization.weight=1",
        "method_kwargs.polarization.lower=0.1",
        "method_kwargs.polarization.upper=0.5",
    )
    assert ours - waits_of_last_step(train, "simclr") == Counter()
