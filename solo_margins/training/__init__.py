"""Pretraining and linear probing as functions of a configuration, with either solo-learn.

``main_pretrain.py`` and ``main_linear.py`` are thin programs on top of them.
"""

# First: it registers our methods, and makes release 1.0.2 of solo-learn importable.
from solo_margins import methods  # noqa: F401
from solo_margins.cli import TrainingInterrupted, TrainingStopped
from solo_margins.training.linear import linear
from solo_margins.training.pretrain import pretrain
from solo_margins.training.run_folder import Run

__all__ = ["Run", "TrainingInterrupted", "TrainingStopped", "linear", "pretrain"]
