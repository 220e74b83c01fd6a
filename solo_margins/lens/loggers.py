"""Observations in whatever loggers a training has: numbers, histograms, a figure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from solo_margins.lens.records import Histogram, Observation


def log_scalars(loggers: Iterable[Any], seen: Observation) -> None:
    """Log all numbers of an observation to every logger."""
    numbers = {f"lens/{name}": value for name, value in seen.scalars.items()}
    for logger in loggers:
        logger.log_metrics({**numbers, "epoch": int(seen.epoch)}, step=seen.step)


def _kind(logger: Any) -> str:
    """Return what a logger is, without importing packages that may not be installed."""
    return next(
        (
            base.__name__
            for base in type(logger).__mro__
            if base.__name__ in ("TensorBoardLogger", "WandbLogger")
        ),
        "",
    )


def log_histograms(loggers: Iterable[Any], seen: Observation) -> None:
    """Log the histograms to loggers that have any: TensorBoard and Weights & Biases."""
    for logger in loggers:
        kind = _kind(logger)
        for name, histogram in seen.histograms.items():
            if kind == "TensorBoardLogger":
                _to_tensorboard(logger.experiment, f"lens/{name}", histogram, seen.step)
            elif kind == "WandbLogger":
                import numpy
                import wandb

                counts, edges = numpy.array(histogram.counts), numpy.array(histogram.edges)
                counted = wandb.Histogram(np_histogram=(counts, edges))
                logger.log_metrics({f"lens/{name}_histogram": counted}, step=seen.step)


def _to_tensorboard(experiment: Any, name: str, histogram: Histogram, step: int) -> None:
    centres = histogram.centres
    total = histogram.total
    experiment.add_histogram_raw(
        name,
        min=histogram.low,
        max=histogram.high,
        num=total,
        sum=sum(c * n for c, n in zip(centres, histogram.counts, strict=True)),
        sum_squares=sum(c * c * n for c, n in zip(centres, histogram.counts, strict=True)),
        bucket_limits=histogram.edges[1:],
        bucket_counts=histogram.counts,
        global_step=step,
    )


def log_figure(loggers: Iterable[Any], seen: Observation, band: Any = None) -> None:
    """Draw an observation for loggers that keep pictures; without matplotlib there is none."""
    wanted = [logger for logger in loggers if _kind(logger)]
    if not wanted:
        return
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        return
    figure = draw(Figure(figsize=(10, 3)), seen, band)
    for logger in wanted:
        if _kind(logger) == "TensorBoardLogger":
            logger.experiment.add_figure("lens/angles", figure, global_step=seen.step)
        else:
            import matplotlib.pyplot  # noqa: F401 - wandb looks it up without importing it
            import wandb

            logger.log_metrics({"lens/angles": wandb.Image(figure)}, step=seen.step)


def draw(figure: Any, seen: Observation, band: Any = None) -> Any:
    """Draw the histograms of an observation side by side and return the figure."""
    angles, probabilities, distances = figure.subplots(1, 3)
    for name, label in (("positive_angle", "positives"), ("negative_angle", "negatives")):
        if name in seen.histograms:
            _outline(angles, seen.histograms[name], label, scale=180.0 / math.pi)
    angles.set_xlabel("angle, degrees")
    angles.set_ylabel("share")
    angles.legend()
    for axis, name, label in (
        (probabilities, "q", "q of the positives"),
        (distances, "distance", "distance of projections"),
    ):
        if name in seen.histograms:
            _outline(axis, seen.histograms[name], None)
        axis.set_xlabel(label)
    if band is not None:
        distances.axvspan(band.lower, band.upper, alpha=0.2)
    figure.suptitle(f"step {seen.step}")
    figure.tight_layout()
    return figure


def _outline(axis: Any, histogram: Histogram, label: str | None, scale: float = 1.0) -> None:
    shares = [count / max(1, histogram.total) for count in histogram.counts]
    axis.stairs(
        shares, [edge * scale for edge in histogram.edges], fill=True, alpha=0.5, label=label
    )
