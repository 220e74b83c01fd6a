"""Writes observations to the loggers of a trainer: numbers, histograms, a figure."""

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
