"""Writes one HTML file that compares the observations of several runs.

python -m solo_margins.lens report <run> [<run> …] output=report.html
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import plotly.io
from jinja2 import Environment, PackageLoader
from plotly.offline import get_plotlyjs

from solo_margins.files import complete_file, output_path
from solo_margins.lens.figures import sections
from solo_margins.lens.runs import ACCURACIES, ReportedRun, as_text, load_runs

ENDINGS = (".html", ".htm")
THEMES = ("plotly_white", "plotly_dark")


def parse(arguments: Sequence[str]) -> tuple[list[Path], Path]:
    """Return the folders of the runs and where to write the report.

    Raises:
        ValueError: a setting is unknown or no run is named.

    Examples:
        >>> parse(["runs/a", "output=a.html"])
        ([PosixPath('runs/a')], PosixPath('a.html'))
    """
    folders, output = [], Path("report.html")
    for argument in arguments:
        if argument.startswith("output="):
            output = output_path(argument.removeprefix("output="), ENDINGS)
        elif re.match(r"-|\w+=", argument) and not Path(argument).exists():
            raise ValueError(f"{argument!r} is neither a run folder nor output=<file>.")
        else:
            folders.append(Path(argument))
    if not folders:
        raise ValueError("Name the folders of the runs: report RUN [RUN …] [output=report.html].")
    return folders, output


def write_report(arguments: Sequence[str]) -> Path:
    """Write the report that the arguments describe, and return its path.

    Missing and unreadable data are listed on stderr and in the report.

    Raises:
        ValueError: nothing can be shown, or an argument cannot be used.
    """
    folders, output = parse(arguments)
    runs, notes = load_runs(folders)
    if not runs:
        reasons = " ".join(notes)
        raise ValueError(f"No report was written, because there is nothing to show: {reasons}")
    environment = Environment(loader=PackageLoader("solo_margins", "lens"), autoescape=True)
    content = environment.get_template("report.html").render(
        runs=runs,
        sections=sections(runs),
        notes=notes,
        accuracies=ACCURACIES,
        settings=_settings(runs),
        versions=sorted({name for run in runs for name in run.versions}),
        plotlyjs=get_plotlyjs(),
        themes={name: plotly.io.templates[name].to_plotly_json() for name in THEMES},
    )
    with complete_file(output) as unfinished:
        # File names may hold bytes that are not valid text.
        unfinished.write_text(content, encoding="utf-8", errors="replace")
    for note in notes:
        print(note, file=sys.stderr)
    return output


def _settings(runs: Sequence[ReportedRun]) -> dict[bool, dict[str, list[str]]]:
    """Return the settings that differ between runs (True), and those that do not (False)."""
    found: dict[bool, dict[str, list[str]]] = {True: {}, False: {}}
    known = [run.settings for run in runs if run.settings]
    for key in sorted({key for settings in known for key in settings}):
        values = [as_text(each[key]) if key in each else "absent" for each in known]
        found[len(set(values)) > 1][key] = values
    return found
