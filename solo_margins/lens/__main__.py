"""The lens as a program.

python -m solo_margins.lens curves margins.angular=0.5 temperature=0.2
python -m solo_margins.lens report <run> [<run> …] output=report.html
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from solo_margins.cli import SetupError, run_cli, user_errors

USAGE = (
    "Choose a command: python -m solo_margins.lens curves [key=value …] draws margins as curves, "
    "python -m solo_margins.lens report RUN [RUN …] [output=report.html] compares runs"
)
OF_THE_EXTRA = ("jinja2", "matplotlib", "omegaconf", "plotly")


def main(arguments: Sequence[str]) -> None:
    """Draw curves or write a report, as the first argument says."""
    command, rest = (arguments[0], arguments[1:]) if arguments else (None, [])
    with user_errors():
        try:
            if command == "curves":
                from solo_margins.lens.curve_figure import draw_curves as write
            elif command == "report":
                from solo_margins.lens.report import write_report as write
            else:
                unknown = "" if command is None else f"; {command!r} is neither"
                raise SetupError(f"{USAGE}{unknown}.")
        except ModuleNotFoundError as missing:
            package = str(missing.name).partition(".")[0]
            if package not in OF_THE_EXTRA:
                raise
            words = f"This needs {package}, which is not installed"
            raise SetupError(f"{words}: pip install solo-margins[lens]") from None
        print(f"Written: {write(rest)}")


if __name__ == "__main__":
    run_cli(main, sys.argv[1:])
