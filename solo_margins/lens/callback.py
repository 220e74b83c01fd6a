"""Watches a training: every k steps, on the batch at hand, what margins do to the gradients."""

from __future__ import annotations

import logging
import math
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from solo_margins import host
from solo_margins.host.checkpointing import run_folder
from solo_margins.host.versions import versions
from solo_margins.lens.loggers import log_figure, log_histograms, log_scalars
from solo_margins.lens.measures import Measured, measure
from solo_margins.lens.records import Observation, Warned, Writer
from solo_margins.lens.settings import LensSettings
from solo_margins.lens.signs import COLLAPSE, Signs
from solo_margins.lens.watching import Sight, compares_cosines, watching

WARM_UP = "scheduler.warmup_epochs"

log = logging.getLogger("solo_margins.lens")


class Lens(host.pl.Callback):
    """Measures every k steps what the losses compare, logs it and warns of trouble.

    Of several processes the first one measures its own rows, against the keys of all of them.

    Args:
        settings: how often, and what to do about a collapse.
        folder: of the run, which gets the file of observations; None asks the checkpointer.
    """

    def __init__(self, settings: LensSettings, folder: Path | None = None) -> None:
        super().__init__()
        self.settings = settings
        self.folder = folder
        self.stopped: str | None = None
        """Why the training was ended, if it was."""
        self.seconds = 0.0
        self.observations = 0
        self._signs = Signs()
        self._writer: Writer | None = None
        self._watching = ExitStack()
        self._sight: Sight | None = None
        self.interval = 1
        self._last_step = -1
        self._began = 0.0
        self._last: Observation | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin the run's file, or go on with it."""
        batches = trainer.num_training_batches
        self.interval = self.settings.interval(batches if math.isfinite(batches) else math.inf)
        self._began = time.perf_counter()
        self._signs = Signs(grace_epochs=1.0 + float(_setting(pl_module, WARM_UP) or 0.0))
        if not trainer.is_global_zero:
            return
        if not compares_cosines(pl_module):
            log.warning(
                "Lens: %s compares no cosines that could be seen; only its features and "
                "projections are watched.",
                type(pl_module).__name__,
            )
        self._writer = Writer(self.folder or run_folder(trainer))
        self._writer.begin(_header(pl_module, self.interval), first_step=trainer.global_step)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, index: int) -> None:
        """Begin to watch where this step is to be observed."""
        step = trainer.global_step
        if step % self.interval or step == self._last_step:
            return
        # The first of the batches that gradients are accumulated from stands for all.
        self._last_step = step
        began = time.perf_counter()
        self._sight = self._watching.enter_context(watching(pl_module))
        self.seconds += time.perf_counter() - began

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, index: int
    ) -> None:
        """Measure what was seen."""
        sight, self._sight = self._sight, None
        if sight is None:
            return
        self._watching.close()
        if pl_module.device.type == "cuda":
            # What the training itself still computes is not the lens's to pay for.
            torch.cuda.synchronize(pl_module.device)
        began = time.perf_counter()
        collapsed = None
        if trainer.is_global_zero:
            collapsed = self._observe(trainer, pl_module, sight, index)
        if self.settings.on_collapse == "stop":
            # Every process must stop at the same step.
            stops = collapsed is not None
            if trainer.world_size > 1:
                stops = trainer.strategy.reduce_boolean_decision(stops, all=False)
            if stops:
                self.stopped = collapsed or "another process saw a sign of collapse"
                trainer.should_stop = True
        self.seconds += time.perf_counter() - began + sight.seconds

    def _observe(self, trainer: Any, pl_module: Any, sight: Sight, index: int) -> str | None:
        """Measure, write and log; return the text of a sign of collapse that is new."""
        band = getattr(pl_module, "polarization", None)
        views = getattr(pl_module, "num_crops", 2)
        measured = measure(
            sight.compared,
            # Some steps project a view more than once; the last time is the one they compare.
            torch.cat(sight.projections[-views:]) if sight.projections else None,
            torch.cat(sight.features) if sight.features else None,
            None if band is None else (band.lower, band.upper),
        )
        self.observations += 1
        step = self._last_step
        epoch = trainer.current_epoch + index / max(1, trainer.num_training_batches)
        margins = {} if measured.margins is None else asdict(measured.margins)
        seen = Observation(step, epoch, measured.scalars, measured.histograms, margins)
        self._last = seen
        assert self._writer is not None
        self._writer.observation(seen)
        log_scalars(trainer.loggers, seen)
        log_histograms(trainer.loggers, seen)
        return self._warn(measured, seen)

    def _warn(self, measured: Measured, seen: Observation) -> str | None:
        collapsed = None
        assert self._writer is not None
        step = seen.step
        for name, text in self._signs.look(measured, seen.epoch):
            self._writer.warning(Warned(step, name, text))
            log.warning("Lens, step %d: %s.", step, text)
            if name in COLLAPSE:
                collapsed = collapsed or text
        return collapsed

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Draw the last observation for loggers that keep pictures."""
        if self._last is not None and trainer.is_global_zero:
            began = time.perf_counter()
            log_figure(trainer.loggers, self._last, getattr(pl_module, "polarization", None))
            self._last = None
            self.seconds += time.perf_counter() - began

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Say what watching took."""
        if self._writer is None or not self.observations:
            return
        whole = time.perf_counter() - self._began
        self._writer.cost(
            observations=self.observations, seconds=self.seconds, training_seconds=whole
        )
        print(
            f"Lens: {self.observations} observations, one every {self.interval} steps, took "
            f"{self.seconds:.1f} s of {whole:.1f} s ({self.seconds / whole:.1%}): "
            f"{self._writer.path}",
            flush=True,
        )

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leave the method as it was."""
        self._watching.close()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Leave the method as it was."""
        self._watching.close()


def _setting(module: Any, key: str) -> Any:
    cfg = getattr(module, "cfg", None)
    return OmegaConf.select(cfg, key, default=None) if isinstance(cfg, DictConfig) else None


def _header(module: Any, every: int) -> dict[str, Any]:
    def setting(key: str) -> Any:
        return _setting(module, key)

    margins = getattr(module, "margins", None)
    band = getattr(module, "polarization", None)
    return {
        "method": setting("method") or type(module).__name__,
        "name": setting("name"),
        "seed": setting("seed"),
        "data": setting("data.name") or setting("data.dataset"),
        "variant": setting("variant"),
        "host": host.form(),
        "versions": versions(),
        "margins": None if margins is None else asdict(margins),
        "polarization": None if band is None else asdict(band),
        "temperature": setting("method_kwargs.temperature"),
        "every": every,
    }
