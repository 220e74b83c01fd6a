"""Tables of a report as HTML; every word that comes from a file is escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from solo_margins.lens.report_runs import ACCURACIES, ReportedRun, shown


def swatch(place: int) -> str:
    """Return a mark in the colour of a run."""
    return f'<span class="swatch run-{place}" aria-hidden="true"></span>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "") -> str:
    """Return a table from cells that are HTML already; the first of a row is its heading."""
    heads = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    lines = "".join(
        f'<tr><th scope="row">{row[0]}</th>' + "".join(f"<td>{cell}</td>" for cell in row[1:])
        for row in rows
    )
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )


def run_heads(runs: Sequence[ReportedRun]) -> list[str]:
    """Return each run's mark and name."""
    return [f"{swatch(place)}{escape(run.label)}" for place, run in enumerate(runs)]


def overview(runs: Sequence[ReportedRun]) -> str:
    """Return which runs are compared and how they ended."""
    rows = []
    for head, run in zip(run_heads(runs), runs, strict=True):
        last = [
            f"{values[max(values)]:.2f}&nbsp;%" if values else "–"
            for values in (run.accuracies.get(column, {}) for column in ACCURACIES)
        ]
        seen = run.lens.observations
        extent = f"{len(seen)} to step {seen[-1].step}" if seen else "–"
        rows.append(
            [
                head,
                escape(run.other_name),
                *(escape(run.described(key)) for key in ("method", "data", "variant")),
                escape(run.described("seed")),
                extent,
                *last,
                str(len(run.lens.warnings)),
            ]
        )
    columns = ("run", "also called", "method", "data", "variant", "seed", "observations")
    return table(
        [*columns, *(f"last {name}" for name in ACCURACIES.values()), "warnings"], rows, "overview"
    )


def warnings(runs: Sequence[ReportedRun]) -> str:
    """Return what the user was warned of, run by run; nothing where there is none."""
    items = [
        f"<li>{head}, step {warned.step}: {escape(warned.text)}</li>"
        for head, run in zip(run_heads(runs), runs, strict=True)
        for warned in run.lens.warnings
    ]
    return f"<ul>{''.join(items)}</ul>" if items else ""


def configuration(runs: Sequence[ReportedRun]) -> str:
    """Return the settings that differ, and those that do not, folded."""
    known = [run for run in runs if run.settings]
    if not known:
        return ""
    heads = [head for head, run in zip(run_heads(runs), runs, strict=True) if run.settings]
    keys = sorted({key for run in known for key in run.settings})
    differing, equal = [], []
    for key in keys:
        cells = [shown(run.settings[key]) if key in run.settings else "absent" for run in known]
        if len(set(cells)) > 1:
            differing.append([escape(key), *map(escape, cells)])
        else:
            equal.append([escape(key), escape(cells[0])])
    parts = []
    if differing:
        parts.append(table(["setting", *heads], differing, "settings"))
    elif len(known) > 1:
        parts.append("<p>The runs have the same settings.</p>")
    if equal:
        words = "settings" if len(known) == 1 else "settings that all runs share"
        parts.append(
            f"<details><summary>{len(equal)} {words}</summary>"
            f"{table(['setting', 'value'], equal, 'settings')}</details>"
        )
    return "".join(parts)


def versions(runs: Sequence[ReportedRun]) -> str:
    """Return the versions of the packages that the runs were trained with."""
    found: list[Mapping[str, Any]] = []
    for run in runs:
        given = run.lens.header.get("versions")
        named = dict(given) if isinstance(given, Mapping) else {}
        if "host" in run.lens.header:
            named["solo-learn's form"] = run.lens.header["host"]
        found.append(named)
    names = sorted({name for each in found for name in each})
    if not names:
        return ""
    rows = [[escape(name), *(escape(shown(each.get(name))) for each in found)] for name in names]
    return table(["package", *run_heads(runs)], rows, "settings")


def cost(runs: Sequence[ReportedRun]) -> str:
    """Return the time that observing took, as the runs themselves measured it."""
    rows = []
    for head, run in zip(run_heads(runs), runs, strict=True):
        if not run.lens.cost:
            continue
        seconds = run.lens.cost.get("seconds")
        training = run.lens.cost.get("training_seconds")
        looks = run.lens.cost.get("observations")
        share = f"{100 * seconds / training:.2f} %" if seconds is not None and training else "–"
        each = f"{1000 * seconds / looks:.1f} ms" if seconds is not None and looks else "–"
        rows.append(
            [
                head,
                "–" if looks is None else f"{looks:.0f}",
                "–" if seconds is None else f"{seconds:.2f} s",
                "–" if training is None else f"{training:.1f} s",
                share,
                each,
            ]
        )
    if not rows:
        return ""
    columns = ["run", "observations", "the lens", "training", "share", "an observation"]
    return table(columns, rows)
