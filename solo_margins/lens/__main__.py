"""The lens as a program.

python -m solo_margins.lens curves margins.angular=0.5 temperature=0.2
python -m solo_margins.lens report <run> [<run> …] output=report.html
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from solo_margins.runner.program import SetupError, explained, run_as_program

USAGE = (
    "Say what to show: python -m solo_margins.lens curves [key=value …] draws margins as curves, "
    "python -m solo_margins.lens report RUN [RUN …] [output=report.html] compares runs"
)


def main(arguments: Sequence[str]) -> None:
    """Draw curves or write a report, as the first argument says."""
    command, rest = (arguments[0], arguments[1:]) if arguments else (None, [])
    with explained():
        if command == "curves":
            from solo_margins.lens.curve_figure import draw_curves

            written = draw_curves(rest)
        elif command == "report":
            from solo_margins.lens.report import write_report

            written = write_report(rest)
        else:
            unknown = "" if command is None else f"; {command!r} is neither"
            raise SetupError(f"{USAGE}{unknown}.")
    print(f"Written: {written}")


if __name__ == "__main__":
    run_as_program(main, sys.argv[1:])
