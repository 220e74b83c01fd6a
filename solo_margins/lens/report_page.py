"""A report as one HTML file that needs nothing else: no network, no other file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from typing import Any

from solo_margins.lens import report_tables as tables
from solo_margins.lens.files import lens_package
from solo_margins.lens.report_figures import Figure
from solo_margins.lens.report_runs import ReportedRun
from solo_margins.lens.report_sections import Section

COLOURS = 10
"""Runs that have a colour of their own; later ones begin again with the first."""

# Whatever a browser or plotly may want to load: nothing leaves the page.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)
DASHES = {"solid": "none", "dot": "2 4", "dash": "7 4"}
"""Dashes of plotly as those of SVG."""


@dataclass(frozen=True)
class Block:
    """A heading of the page with what stands below it, as HTML."""

    key: str
    title: str
    content: str


def script_safe(value: Any) -> str:
    """Return JSON that cannot end the script it stands in.

    Example:
        >>> script_safe("</script>")
        '"\\\\u003c/script\\\\u003e"'
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def page(runs: Sequence[ReportedRun], sections: Sequence[Section], notes: Sequence[str]) -> str:
    """Return the HTML of a report.

    Args:
        runs: what it compares.
        sections: its plots.
        notes: a sentence for everything that is missing.
    """
    plotly = lens_package("plotly.offline").get_plotlyjs()
    blocks: list[Block] = []
    figures: list[Figure] = []
    for section in sections:
        blocks.append(Block(section.key, section.title, _plots(section, figures, runs)))
    for key, title, content in (
        ("configuration", "Configuration", tables.configuration(runs)),
        ("versions", "Versions", tables.versions(runs)),
        ("cost", "What the lens cost", tables.cost(runs)),
    ):
        if content:
            blocks.append(Block(key, title, content))
    data = [
        {"data": each.data, "layout": each.layout, "wide": each.is_wide, "timed": each.is_timed}
        for each in figures
    ]
    title = "Lens report: " + ", ".join(run.label for run in runs)
    return "".join(
        [
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            # A browser would ask for one otherwise.
            '<link rel="icon" href="data:,">',
            f"<title>{escape(title)}</title>",
            f"<style>{_asset('report_page.css')}{_run_colours(len(runs))}</style></head><body>",
            _head(runs, blocks, notes),
            "".join(_section(block) for block in blocks),
            "<noscript><p>The plots need JavaScript.</p></noscript>",
            f"<script>{plotly}</script>",
            f'<script type="application/json" id="figures">{script_safe(data)}</script>',
            f"<script>{_asset('report_page.js')}</script></body></html>\n",
        ]
    )


def _asset(name: str) -> str:
    return resources.files("solo_margins.lens").joinpath(name).read_text(encoding="utf-8")


def _run_colours(runs: int) -> str:
    return "".join(f".run-{place}{{--run:var(--run-{place % COLOURS})}}" for place in range(runs))


def _head(runs: Sequence[ReportedRun], blocks: Sequence[Block], notes: Sequence[str]) -> str:
    links = "".join(f'<a href="#{block.key}">{escape(block.title)}</a>' for block in blocks)
    words = "What the lens saw" if len(runs) == 1 else f"What the lens saw in {len(runs)} runs"
    parts = [f"<header><h1>{words}</h1><nav>{links}</nav>{tables.overview(runs)}"]
    warned = tables.warnings(runs)
    if warned:
        parts.append(f'<div class="box warnings"><h2>Warnings</h2>{warned}</div>')
    if notes:
        items = "".join(f"<li>{escape(note)}</li>" for note in notes)
        parts.append(f'<div class="box notes"><h2>Notes</h2><ul>{items}</ul></div>')
    return "".join([*parts, "</header>"])


def _section(block: Block) -> str:
    return f'<section id="{block.key}"><h2>{escape(block.title)}</h2>{block.content}</section>'


def _plots(section: Section, figures: list[Figure], runs: Sequence[ReportedRun]) -> str:
    """Return the plots of a section as HTML, and add them to those of the page."""
    parts = []
    if any(figure.is_timed for figure in section.figures):
        parts.append(
            '<div class="time"><label for="time">Step</label>'
            '<input type="range" id="time" min="0" value="0" step="1">'
            '<output id="step" for="time"></output>'
            '<label class="same"><input type="checkbox" id="same"> same scale at all steps</label>'
            "</div>"
        )
    parts.append('<div class="plots">')
    for figure in section.figures:
        wide = " wide" if figure.is_wide else ""
        about = f"<p>{escape(figure.about)}</p>" if figure.about else ""
        parts.append(
            f'<figure class="card{wide}"><figcaption><h3>{escape(figure.title)}</h3>{about}'
            f'{_legend(figure, runs)}</figcaption><div class="plot" id="plot-{len(figures)}" '
            f'role="img" aria-label="{escape(figure.title)}"></div></figure>'
        )
        figures.append(figure)
    parts.append("</div>")
    return "".join(parts)


def _legend(figure: Figure, runs: Sequence[ReportedRun]) -> str:
    """Return the legend, above the plot and not in it, where it would hide data."""
    items = [
        f'<button type="button" class="run" data-run="{place}" '
        f'title="show or hide this run in all plots">{tables.swatch(place)}'
        f"{escape(runs[place].label)}</button>"
        for place in figure.runs
    ]
    # One kind of line needs no explanation, unless it is of no run.
    dashes = figure.legend if len(figure.legend) > 1 or "dash" in dict(figure.legend) else []
    items += [
        f'<span class="dash"><svg width="30" height="10" aria-hidden="true"><line x1="1" y1="5" '
        f'x2="29" y2="5" stroke="currentColor" stroke-width="2" '
        f'stroke-dasharray="{DASHES[dash]}"/></svg>{escape(means)}</span>'
        for dash, means in dashes
    ]
    return f'<div class="legend">{"".join(items)}</div>'
