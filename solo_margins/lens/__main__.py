"""The lens as a program.

python -m solo_margins.lens curves margins.angular=0.5 temperature=0.2
python -m solo_margins.lens report <run> [<run> …] output=report.html
"""

import sys
from collections.abc import Sequence
from importlib import import_module

from solo_margins.cli import SetupError, run_cli, user_errors

# Module and function of each command.
COMMANDS = {"curves": ("curve_figure", "draw_curves"), "report": ("report", "write_report")}
USAGE = (
    "Choose a command: python -m solo_margins.lens curves [key=value …] draws margins as curves, "
    "python -m solo_margins.lens report RUN [RUN …] [output=report.html] compares runs"
)


def main(arguments: Sequence[str]) -> None:
    """Draw curves or write a report, as the first argument says."""
    with user_errors():
        if not arguments or arguments[0] not in COMMANDS:
            unknown = f"; {arguments[0]!r} is neither" if arguments else ""
            raise SetupError(f"{USAGE}{unknown}.")
        module, function = COMMANDS[arguments[0]]
        try:
            write = getattr(import_module(f"solo_margins.lens.{module}"), function)
        except ModuleNotFoundError as missing:
            needed = f"This needs {str(missing.name).partition('.')[0]}, which is not installed"
            raise SetupError(f"{needed}: pip install solo-margins[lens]") from None
        print(f"Written: {write(arguments[1:])}")


if __name__ == "__main__":
    run_cli(main, sys.argv[1:])
