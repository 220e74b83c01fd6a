"""Writes observations to the loggers of a trainer: numbers, histograms, a figure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy

from solo_margins.lens.records import HISTOGRAMS, Observation


def _kind(logger: Any) -> str:
    """Return the kind of a logger without importing packages that may be missing."""
    names = [base.__name__ for base in type(logger).__mro__]
    return next((name for name in names if name in ("TensorBoardLogger", "WandbLogger")), "")


def log_observation(loggers: Iterable[Any], seen: Observation) -> None:
    """Log all numbers to every logger, and histograms to TensorBoard and Weights & Biases."""
    numbers = {f"lens/{name}": value for name, value in seen.scalars.items()}
    for logger in loggers:
        kind = _kind(logger)
        logger.log_metrics({**numbers, "epoch": int(seen.epoch)}, step=seen.step)
        for name, histogram in seen.histograms.items():
            counts, edges = numpy.array(histogram.counts), numpy.array(histogram.edges)
            if kind == "TensorBoardLogger":
                values = numpy.repeat(histogram.centres, counts)
                logger.experiment.add_histogram(f"lens/{name}", values, seen.step, bins=edges)
            elif kind == "WandbLogger":
                import wandb

                counted = wandb.Histogram(np_histogram=(counts, edges))
                logger.log_metrics({f"lens/{name}_histogram": counted}, step=seen.step)


def log_figure(loggers: Iterable[Any], seen: Observation, band: Any = None) -> None:
    """Draw an observation for loggers that store images, if matplotlib is installed."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        return
    for logger in filter(_kind, loggers):
        figure = draw(Figure(figsize=(10, 3), layout="tight"), seen, band)
        if _kind(logger) == "TensorBoardLogger":
            logger.experiment.add_figure("lens/angles", figure, global_step=seen.step)
        else:
            import matplotlib.pyplot  # noqa: F401 - wandb looks it up without importing it
            import wandb

            logger.log_metrics({"lens/angles": wandb.Image(figure)}, step=seen.step)


def draw(figure: Any, seen: Observation, band: Any = None) -> Any:
    """Draw the histograms of an observation side by side and return the figure."""
    axes = figure.subplots(1, len(HISTOGRAMS))
    for axis, (title, names, _, unit) in zip(axes, HISTOGRAMS, strict=True):
        axis.set(xlabel=title, ylabel="share")
        for name in names:
            if name in seen.histograms:
                counts, edges = seen.histograms[name].counts, seen.histograms[name].edges
                shares = numpy.array(counts) / max(1, sum(counts))
                axis.stairs(shares, unit * numpy.array(edges), fill=True, alpha=0.5)
    if band is not None:
        axes[-1].axvspan(band.lower, band.upper, alpha=0.2)
    figure.suptitle(f"step {seen.step}")
    return figure
