"""The lens as a program: python -m solo_margins.lens curves|report|advise …

python -m solo_margins.lens curves [key=value …]
    Draw what margins do to gradients, before any training.
    margins.<name>=…       as in method_kwargs.margins, off by default: angular, subtractive,
                           positive_scale, curvature, attenuation, attenuation_type, curve,
                           beyond_pi
    temperature=0.2        τ
    q=0.5                  probability of the positive in plots against its angle
    degrees=60             angle of the positive in plots against its probability
    output=lens_curves.png or .pdf, .svg

python -m solo_margins.lens report RUN [RUN …] [output=report.html]
    Compare runs in one HTML file. RUN is the folder of a run.

python -m solo_margins.lens advise RUN
    Print which settings to change and in which direction, from what the lens recorded of a run:
    five lines at most, each with the measured value. They are rules of thumb.

A run is recorded if it is trained with lens.enabled=true. docs/lens.md explains every measure.
"""

import sys
from collections.abc import Sequence
from importlib import import_module

from solo_margins.cli import SetupError, run_cli, user_errors

# Module and function of each command.
COMMANDS = {
    "curves": ("curve_figure", "draw_curves"),
    "report": ("report", "write_report"),
    "advise": ("health", "advise"),
}


def main(arguments: Sequence[str]) -> None:
    """Draw curves, write a report or print advice, as the first argument says."""
    command = arguments[0] if arguments else ""
    if {"-h", "--help"} & set(arguments):
        parts = str(__doc__).split("\n\n")
        print(next((part for part in parts if f"lens {command} " in part), __doc__))
        return
    with user_errors():
        if command not in COMMANDS:
            unknown = f", {command!r} is none of them" if command else ""
            words = "python -m solo_margins.lens --help explains them"
            raise SetupError(f"Choose a command, curves, report or advise{unknown}: {words}.")
        module, function = COMMANDS[command]
        try:
            run = getattr(import_module(f"solo_margins.lens.{module}"), function)
        except ModuleNotFoundError as missing:
            needed = f"This needs {str(missing.name).partition('.')[0]}, which is not installed"
            raise SetupError(f"{needed}: pip install solo-margins[lens]") from None
        answer = run(arguments[1:])
        print(answer if command == "advise" else f"Written: {answer}")


if __name__ == "__main__":
    run_cli(main, sys.argv[1:])
