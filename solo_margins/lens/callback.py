"""The Lightning callback that measures every k steps what margins do to a batch's gradients."""

import logging
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy
import torch
from omegaconf import DictConfig, OmegaConf

from solo_margins.checkpoints import run_folder
from solo_margins.host.detect import HostNotFoundError, form, versions
from solo_margins.lens import LensSettings
from solo_margins.lens.capture import StepCapture, capture
from solo_margins.lens.health import HealthChecks
from solo_margins.lens.measures import Band, measure
from solo_margins.lens.records import HISTOGRAMS, HealthWarning, Observation, Writer

log = logging.getLogger("solo_margins.lens")


def band_of(module: Any) -> Band:
    """Return lower and upper end of the polarization's band, None if its weight is and stays 0."""
    band = module.polarization if getattr(module, "is_polarized", False) else None
    return band and (band.lower, band.upper)


class Lens(pl.Callback):
    """Measures every k steps what the losses compare, logs it and warns of problems.

    Only the first rank measures: its own rows, against the keys of all ranks.

    Args:
        settings: how often to measure, and whether to stop at a collapse.
        folder: the run folder, for the file of observations; None asks the checkpointer.
    """

    def __init__(self, settings: LensSettings, folder: Path | None = None) -> None:
        super().__init__()
        self.settings = settings
        self.folder = folder
        self.stopped: str | None = None  # why the lens ended the run, if it did
        self.seconds = 0.0
        self.observations = 0
        self._capturing = ExitStack()
        self._captured: StepCapture | None = None
        self._last: Observation | None = None
        self._last_step = -1

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Start the run's file, or continue it."""
        self.interval = self.settings.interval(trainer.num_training_batches)
        self._began = time.perf_counter()
        cfg = getattr(pl_module, "cfg", None)
        cfg = cfg if isinstance(cfg, DictConfig) else DictConfig({})
        self._health = HealthChecks(cfg)
        if trainer.is_global_zero:
            header = {"every": self.interval, "method": type(pl_module).__name__}
            header["settings"] = OmegaConf.to_container(cfg, resolve=True)
            with suppress(HostNotFoundError):
                header.update(host=form(), versions=versions())
            self._writer = Writer(self.folder or run_folder(trainer))
            self._writer.begin(header, first_step=trainer.global_step)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, index: int) -> None:
        """Start capturing if this step is to be observed."""
        step = trainer.global_step
        # With accumulated gradients only the first batch of a step is measured.
        if step % self.interval == 0 and step != self._last_step:
            self._last_step = step
            self._captured = self._capturing.enter_context(capture(pl_module))

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, index: int
    ) -> None:
        """Measure what was captured."""
        captured, self._captured = self._captured, None
        if captured is None:
            return
        self._capturing.close()
        if pl_module.device.type == "cuda":
            # Pending work of the training step is not part of the lens's cost.
            torch.cuda.synchronize(pl_module.device)
        began = time.perf_counter()
        collapse = None
        if trainer.is_global_zero:
            epoch = trainer.current_epoch + index / max(1, trainer.num_training_batches)
            collapse = self._observe(trainer, pl_module, captured, epoch)
        # Every rank must stop at the same step.
        if self.settings.on_collapse == "stop" and trainer.strategy.reduce_boolean_decision(
            collapse is not None, all=False
        ):
            self.stopped = collapse or "the lens of another rank found a collapse"
            trainer.should_stop = True
        self.seconds += time.perf_counter() - began + captured.seconds

    def _observe(self, trainer: Any, module: Any, captured: StepCapture, epoch: float) -> Any:
        """Measure, write and log; return the text of a new warning of collapse."""
        views = getattr(module, "num_crops", 2)
        seen = self._last = measure(captured, band_of(module), views, self._last_step, epoch)
        if not captured.compared and not self.observations:
            words = "compares no cosines that the lens can see: only features are measured."
            log.warning("Lens: %s %s", type(module).__name__, words)
        self.observations += 1
        self._writer.add(seen)
        log_observation(trainer.loggers, seen)
        problems = self._health.check(seen)
        for name, text in problems:
            self._writer.add(HealthWarning(seen.step, name, text))
            log.warning("Lens, step %d: %s.", seen.step, text)
        return next((text for name, text in problems if "collapse" in name), None)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Draw the last observation for loggers that store images."""
        if self._last is not None and trainer.is_global_zero:
            began = time.perf_counter()
            log_figure(trainer.loggers, self._last, band_of(pl_module))
            self._last = None
            self.seconds += time.perf_counter() - began

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Print the time that the lens took."""
        if not self.observations:
            return
        whole = time.perf_counter() - self._began
        cost = {"observations": self.observations, "seconds": self.seconds}
        self._writer.add_cost(**cost, training_seconds=whole)
        taken = f"{self.seconds:.1f} s of {whole:.1f} s ({self.seconds / whole:.1%})"
        words = f"{self.observations} observations, one every {self.interval} steps, took {taken}"
        print(f"Lens: {words}: {self._writer.path}", flush=True)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Stop capturing."""
        self._capturing.close()


# What loggers get: numbers, histograms, a figure.


def _kind(logger: Any) -> str:
    """Return the kind of a logger without importing packages that may be missing."""
    names = [base.__name__ for base in type(logger).__mro__]
    return next((name for name in names if name in ("TensorBoardLogger", "WandbLogger")), "")


def log_observation(loggers: Iterable[Any], seen: Observation) -> None:
    """Log all numbers to every logger, and histograms to TensorBoard and Weights & Biases."""
    for logger in loggers:
        kind, logged = _kind(logger), {f"lens/{name}": v for name, v in seen.scalars.items()}
        for name, histogram in seen.histograms.items():
            counts, edges = numpy.array(histogram.counts), numpy.array(histogram.edges)
            if kind == "TensorBoardLogger":
                values = numpy.repeat((edges[:-1] + edges[1:]) / 2, counts)
                logger.experiment.add_histogram(f"lens/{name}", values, seen.step, bins=edges)
            elif kind == "WandbLogger":
                import wandb

                logged[f"lens/{name}_histogram"] = wandb.Histogram(np_histogram=(counts, edges))
        logger.log_metrics({**logged, "epoch": int(seen.epoch)}, step=seen.step)


def log_figure(loggers: Iterable[Any], seen: Observation, band: Any = None) -> None:
    """Draw the histograms for loggers that store images, if matplotlib is installed."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        return
    for logger in filter(_kind, loggers):
        figure: Any = Figure(figsize=(10, 3), layout="tight")
        figure.suptitle(f"step {seen.step}")
        axes = figure.subplots(1, len(HISTOGRAMS))
        for axis, (title, names, _, unit) in zip(axes, HISTOGRAMS, strict=True):
            axis.set(xlabel=title, ylabel="share")
            for histogram in (seen.histograms[name] for name in names if name in seen.histograms):
                shares = numpy.array(histogram.counts) / max(1, histogram.total)
                axis.stairs(shares, unit * numpy.array(histogram.edges), fill=True, alpha=0.5)
        if band is not None:
            axes[-1].axvspan(*band, alpha=0.2)
        if _kind(logger) == "TensorBoardLogger":
            logger.experiment.add_figure("lens/angles", figure, global_step=seen.step)
        else:
            import matplotlib.pyplot  # noqa: F401 - wandb looks it up without importing it
            import wandb

            logger.log_metrics({"lens/angles": wandb.Image(figure)}, step=seen.step)
