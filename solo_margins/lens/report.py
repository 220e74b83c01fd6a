"""One HTML file that compares what the lens saw in several runs.

python -m solo_margins.lens report <run> [<run> …] output=report.html
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from solo_margins.lens.files import complete_file, output_path
from solo_margins.lens.report_page import page
from solo_margins.lens.report_runs import load_runs
from solo_margins.lens.report_sections import sections

OUTPUT = Path("report.html")
ENDINGS = (".html", ".htm")


def parse(arguments: Sequence[str]) -> tuple[list[Path], Path]:
    """Return the folders of the runs and where to write the report.

    Raises:
        ValueError: a setting is unknown or no run is named; the message is one sentence.

    Example:
        >>> parse(["runs/a", "output=a.html"])
        ([PosixPath('runs/a')], PosixPath('a.html'))
    """
    folders, output = [], OUTPUT
    for argument in arguments:
        key, is_setting, text = argument.partition("=")
        if is_setting and key == "output":
            output = output_path(text, ENDINGS)
        elif is_setting and key.isidentifier() and not Path(argument).exists():
            raise ValueError(f"{argument!r} is neither a folder nor a setting: the key is output.")
        elif argument.startswith("-") and not Path(argument).exists():
            raise ValueError(
                f"{argument!r} is no folder: name runs, and output=<file> if you like."
            )
        else:
            folders.append(Path(argument))
    if not folders:
        raise ValueError(
            "Name the folders of the runs to compare: "
            "python -m solo_margins.lens report RUN [RUN …] [output=report.html]."
        )
    return folders, output


def write_report(arguments: Sequence[str]) -> Path:
    """Write the report that the arguments describe, and return where it is.

    What cannot be shown is said on stderr and in the report.

    Raises:
        ValueError: nothing can be shown, or an argument cannot be used.
    """
    folders, output = parse(arguments)
    runs, notes = load_runs(folders)
    if not runs:
        reasons = " ".join(notes)
        raise ValueError(f"There is nothing to show, and no report was written: {reasons}")
    content = page(runs, sections(runs, notes), notes)
    with complete_file(output) as partial:
        # A name that is no text, as file systems allow it, must not end the report.
        partial.write_text(content, encoding="utf-8", errors="replace")
    for note in notes:
        print(note, file=sys.stderr)
    return output
