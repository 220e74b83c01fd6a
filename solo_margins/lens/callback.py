"""The lens: measures every k steps what margins do to a batch's gradients.

A callback for Lightning, and for a loop of one's own, which needs no Lightning:

    lens = Lens(folder="runs/mine", every=10)
    for views in loader:
        with lens.recording(model):
            loss = criterion(*map(model, views))
            ...
    lens.finish()
"""

import logging
import math
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy
import torch
import torch.distributed as dist
from omegaconf import DictConfig, OmegaConf
from torch import nn

from solo_margins.checkpoints import run_folder
from solo_margins.lens import records
from solo_margins.lens.capture import StepCapture, capture
from solo_margins.lens.measures import measure
from solo_margins.lens.records import Histogram, Observation
from solo_margins.lens.rules import HealthChecks
from solo_margins.lens.settings import LensSettings
from solo_margins.losses.gather import is_alone
from solo_margins.versions import versions

try:
    from lightning.pytorch import Callback
except ImportError:  # a loop of one's own needs none
    Callback = object  # type: ignore[assignment, misc]

DEFAULT_INTERVAL = 50

log = logging.getLogger("solo_margins.lens")


class Lens(Callback):
    """Measures every k steps what the losses compare, logs it and warns of problems.

    It observes whatever calls our losses: give it to a Lightning trainer,
    ``Trainer(callbacks=[Lens(every=50)])``, or put each step of a loop into `recording`. In
    several processes only the first rank measures: its own rows, against the keys of all ranks.

    Args:
        folder: for the file of observations, ``lens.jsonl``; None is where the trainer puts
            checkpoints or logs.
        every: steps between two observations; None is 50, or an epoch if that is shorter.
        on_collapse: ``"stop"`` ends a run that seems to collapse, ``"warn"`` warns of it.
        name: of the run, in reports; None is the folder's.
        backbone: the module that makes features; None looks for a part of the model that is called
            ``backbone`` or ``encoder``.
        projector: the module that makes projections; None looks for a part of the model that is
            called ``projector`` or ``projection_head``.

    Attributes:
        last: the last observation.
        stopped: why the run has to end, if ``on_collapse`` is ``"stop"`` and it seems to collapse.
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        every: int | None = None,
        on_collapse: str = "warn",
        name: str | None = None,
        backbone: nn.Module | None = None,
        projector: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.settings = LensSettings(True, every, on_collapse)
        self.folder = folder
        self.name = name
        self.parts = (backbone, projector)
        self.last: Observation | None = None
        self.stopped: str | None = None
        self._step = -1
        self._path: Any = None  # of the file, while a run is observed
        self._loggers: Iterable[Any] = ()
        self._in_lightning = ExitStack()

    def _begin(self, model: Any, step: int, folder: Any, batches: float = math.inf) -> None:
        """Start the run's file, or continue it."""
        if folder is None:
            raise ValueError("folder must be given outside of a Lightning trainer: Lens(folder=…)")
        self.interval = self.settings.every or int(max(1, min(DEFAULT_INTERVAL, batches)))
        self.seconds = 0.0
        self.observations = 0
        self.stopped = None
        self._step = step - 1
        self._began = time.perf_counter()
        cfg = getattr(model, "cfg", None)
        if not isinstance(cfg, DictConfig):
            cfg = DictConfig({})
        self._health = HealthChecks(cfg)
        self._path = Path(folder) / records.FILE
        self._is_first_rank = is_alone() or dist.get_rank() == 0
        if self._is_first_rank:
            header = {
                "every": self.interval,
                "name": self.name,
                "versions": versions(),
                "method": None if model is None else type(model).__name__,
                "settings": OmegaConf.to_container(cfg, resolve=True),
            }
            records.begin(self._path, header, first_step=step)

    @contextmanager
    def recording(
        self, model: Any = None, step: int | None = None, epoch: float = math.nan
    ) -> Iterator[None]:
        """Observe the training step in the block, if it is its turn.

        Args:
            model: whose features are measured; without one, only what the losses compare.
            step: optimiser steps taken before; None counts the blocks. Of several blocks of one
                step the first is observed.
            epoch: epochs trained before, with their fraction. A collapse is looked for after the
                first one, or after ten observations if it is not known.
        """
        if step is None:
            step = self._step + 1
        if self._path is None:
            self._begin(model, step, self.folder)
        if step < self._step:
            raise ValueError(f"step must count over all epochs, got {step} after {self._step}")
        is_observed = step % self.interval == 0 and step != self._step
        self._step = step
        with capture(model, *self.parts) if is_observed else nullcontext() as captured:
            yield
        if captured is None:
            return
        if torch.cuda.is_initialized():
            # Pending work of the training step is not part of the lens's cost.
            torch.cuda.synchronize()
        began = time.perf_counter()
        collapse = None
        if self._is_first_rank:
            collapse = self._observe(model, captured, epoch)
        if self.settings.on_collapse == "stop":
            # Every rank must stop at the same step.
            collapse = _from_first_rank(collapse)
            self.stopped = self.stopped or collapse
        self.seconds += time.perf_counter() - began

    def _observe(self, model: Any, captured: StepCapture, epoch: float) -> str | None:
        """Measure, write and log; return the text of a new warning of collapse."""
        band = None
        if getattr(model, "is_polarized", False):
            band = model.polarization.lower, model.polarization.upper
        # Each part of a batch is projected by itself.
        views = getattr(model, "num_crops", 2) * getattr(model, "simulated_ranks", 1)
        self.last = seen = measure(captured, band, views, self._step, epoch)
        if self.observations == 0 and not captured.compared:
            log.warning("Lens: %s.", _without_losses(captured))
        self.observations += 1
        records.add(self._path, "observation", asdict(seen))
        log_observation(self._loggers, seen)
        collapse = None
        for name, text in self._health.check(seen):
            records.add(self._path, "warning", {"step": seen.step, "name": name, "text": text})
            log.warning("Lens, step %d: %s.", seen.step, text)
            if collapse is None and name.startswith("collapse"):
                collapse = text
        return collapse

    def finish(self) -> None:
        """End the run: print and write the time that the lens took."""
        path = self._path
        self._path = None
        if path is None or self.observations == 0:
            return
        whole = time.perf_counter() - self._began
        cost = {
            "observations": self.observations,
            "seconds": self.seconds,
            "training_seconds": whole,
        }
        records.add(path, "cost", cost)
        print(
            f"Lens: {self.observations} observations, one every {self.interval} steps, "
            f"took {self.seconds:.1f} s of {whole:.1f} s ({self.seconds / whole:.1%}): {path}",
            flush=True,
        )

    # What Lightning calls.

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Start the run's file, or continue it."""
        self._loggers = trainer.loggers
        folder = self.folder or run_folder(trainer)
        self._begin(pl_module, trainer.global_step, folder, trainer.num_training_batches)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, index: int) -> None:
        """Start recording."""
        epoch = trainer.current_epoch + index / max(1, trainer.num_training_batches)
        self._in_lightning.enter_context(self.recording(pl_module, trainer.global_step, epoch))

    def on_train_batch_end(self, trainer: Any, *step: Any) -> None:
        """Measure what was recorded."""
        self._in_lightning.close()
        trainer.should_stop = trainer.should_stop or self.stopped is not None

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Print the time that the lens took."""
        self.finish()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Stop recording."""
        self._in_lightning.__exit__(type(exception), exception, exception.__traceback__)


def _from_first_rank(text: str | None) -> str | None:
    """Return the text of the first rank on every rank."""
    if is_alone():
        return text
    texts = [text]
    dist.broadcast_object_list(texts)
    return texts[0]


def _without_losses(captured: StepCapture) -> str:
    """Return what a step measures in which no loss of ours was called."""
    reason = "no loss of solo_margins was called in the observed step"
    if captured.features and captured.projections:
        measured = "only features and projections are measured"
    elif captured.features:
        measured = "only features are measured"
    elif captured.projections:
        measured = "only projections are measured"
    else:
        measured = "nothing is measured"
    return f"{reason} (losses inside torch.compile are not seen), so that {measured}"


def log_observation(loggers: Iterable[Any], seen: Observation) -> None:
    """Log all numbers to every logger, and histograms to TensorBoard and Weights & Biases."""
    for logger in loggers:
        # By name: their packages may be missing.
        kinds = {base.__name__ for base in type(logger).__mro__}
        logged: dict[str, Any] = {}
        for name, value in seen.scalars.items():
            logged[f"lens/{name}"] = value
        for name, histogram in seen.histograms.items():
            if "TensorBoardLogger" in kinds:
                _add_to_tensorboard(logger, f"lens/{name}", histogram, seen.step)
            elif "WandbLogger" in kinds:
                import wandb

                counted = numpy.array(histogram.counts), numpy.array(histogram.edges)
                logged[f"lens/{name}_histogram"] = wandb.Histogram(np_histogram=counted)
        logged["epoch"] = int(seen.epoch)
        logger.log_metrics(logged, step=seen.step)


def _add_to_tensorboard(logger: Any, name: str, histogram: Histogram, step: int) -> None:
    """Add a histogram, of whose values the middles of their bins are known."""
    edges = numpy.array(histogram.edges)
    middles = (edges[:-1] + edges[1:]) / 2
    values = numpy.repeat(middles, numpy.array(histogram.counts))
    logger.experiment.add_histogram(name, values, step, bins=edges)
