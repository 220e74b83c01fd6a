"""Distances of pairs and of non-pairs before and after training, as histograms side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from matplotlib.figure import Figure

from solo_margins.files import complete_file
from solo_margins.lens.curve_figure import CHOSEN, PLAIN
from solo_margins.lens.records import Histogram


class Distances(Protocol):
    """What is drawn of a model."""

    @property
    def row(self) -> str:
        """What it is called."""

    @property
    def pairs(self) -> Histogram:
        """Distances of pairs."""

    @property
    def others(self) -> Histogram:
        """Distances of non-pairs."""


def draw(models: Sequence[Distances], band: tuple[float, float], path: Path) -> None:
    """Draw a panel for each row, with the counts of all of its seeds, and write the figure.

    Args:
        models: those of the same row are counted together.
        band: of the polarization; shaded.
        path: of the image; its ending says which kind.
    """
    names = list(dict.fromkeys(one.row for one in models))
    columns = min(3, len(names))
    lines = -(-len(names) // columns)
    figure = Figure(figsize=(4.2 * columns, 0.6 + 2.7 * lines))
    axes = figure.subplots(
        lines,
        columns,
        sharex=True,  # not sharey: all distances of a collapsed model are in one bin
        squeeze=False,
    )
    panels = axes.flatten()
    for axis, name in zip(panels, names, strict=False):
        shown = [one for one in models if one.row == name]
        for histograms, label, colour in (
            ([one.others for one in shown], "non-pairs", PLAIN),
            ([one.pairs for one in shown], "pairs", CHOSEN),
        ):
            shares = _shares(histograms)
            edges = histograms[0].edges
            axis.stairs(shares, edges, fill=True, alpha=0.35, color=colour, label=label)
            axis.stairs(shares, edges, color=colour)
        axis.axvspan(*band, color="#facc15", alpha=0.25, lw=0, label="band of dp")
        axis.set_title(name, fontsize=11)
        axis.grid(alpha=0.3)
        axis.set_xlim(0, 1)
        axis.tick_params(labelbottom=True)
    for axis in panels[len(names) :]:
        axis.set_visible(False)
    for line in axes:
        line[0].set_ylabel("share of pairs")
    panels[0].legend(fontsize=9, frameon=False)
    figure.suptitle("distance D = (1 − cos θ)/2 of definitions and usage examples")
    figure.tight_layout()
    with complete_file(path) as partial:
        figure.savefig(partial, dpi=110)


def _shares(histograms: Sequence[Histogram]) -> list[float]:
    """Return the share of each bin in all histograms together."""
    total = max(1, sum(one.total for one in histograms))
    counts = zip(*(one.counts for one in histograms), strict=True)
    return [sum(bin_counts) / total for bin_counts in counts]
