"""Settings that are numbers: a wrong one is refused by its name before anything is loaded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig

from solo_margins.config import setting


@dataclass(frozen=True)
class Allowed:
    """Which numbers a setting may be."""

    least: float = 0.0
    whole: bool = False
    above: bool = False
    """Whether ``least`` itself is not allowed."""

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} {'above' if self.above else 'of at least'} {self.least:g}"

    def holds(self, value: Any) -> bool:
        """Whether a value is allowed."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        if not math.isfinite(value) or (self.whole and value != int(value)):
            return False
        return value > self.least if self.above else value >= self.least


COUNT = Allowed(least=1, whole=True)
SIZE = Allowed(whole=True)
POSITIVE = Allowed(above=True)
RATE = Allowed()
NUMBERS = {
    "seed": SIZE,
    "max_epochs": COUNT,
    "max_steps": Allowed(least=-1, whole=True),
    "num_nodes": COUNT,
    "accumulate_grad_batches": COUNT,
    "gradient_clip_val": RATE,
    "log_every_n_steps": COUNT,
    "check_val_every_n_epoch": COUNT,
    "checkpoint.frequency": COUNT,
    "optimizer.batch_size": COUNT,
    "optimizer.lr": RATE,
    "optimizer.classifier_lr": RATE,
    "optimizer.weight_decay": RATE,
    "scheduler.warmup_epochs": RATE,
    "scheduler.warmup_start_lr": RATE,
    "scheduler.min_lr": RATE,
    "data.num_workers": SIZE,
    "knn_eval.k": COUNT,
    "momentum.base_tau": RATE,
    "momentum.final_tau": RATE,
    "method_kwargs.temperature": POSITIVE,
    "method_kwargs.proj_hidden_dim": COUNT,
    "method_kwargs.proj_output_dim": COUNT,
    "method_kwargs.pred_hidden_dim": COUNT,
    "method_kwargs.queue_size": COUNT,
}
"""Name of a setting to what it may be; null leaves it to whoever has a default."""


def check_numbers(cfg: DictConfig) -> None:
    """Raise ``ValueError`` naming the first setting that is no such number."""
    for key, allowed in NUMBERS.items():
        value = setting(cfg, key)
        if value is not None and not allowed.holds(value):
            raise ValueError(f"{key} must be {allowed}, got {value!r}.")
