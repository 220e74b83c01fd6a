"""The lens as a program: python -m solo_margins.lens curves|report|advise …

python -m solo_margins.lens curves [key=value …]
    Draw what margins do to gradients, before any training.
    margins.<name>=…       as in method_kwargs.margins, off by default: angular, subtractive,
                           positive_scale, curvature, attenuation, attenuation_type, curve,
                           beyond_pi, and scaling._target_=my_package.my_scaling
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

from solo_margins.cli import run_cli

COMMANDS = ("curves", "report", "advise")


def main(arguments: Sequence[str]) -> None:
    """Draw curves, write a report or print advice, as the first argument says."""
    command = arguments[0] if arguments else ""
    if "-h" in arguments or "--help" in arguments:
        print(_help(command))
        return
    if command not in COMMANDS:
        problem = f"Unknown command {command!r}" if command else "No command is given"
        raise ValueError(f"{problem}. Choose from: {', '.join(COMMANDS)}.")
    try:
        answer = _run(command, arguments[1:])
    except ModuleNotFoundError as missing:
        package = str(missing.name).partition(".")[0]
        raise ValueError(
            f"The lens needs {package} for this, which is not installed: run "
            '`pip install ".[lens]"` in the folder of solo-margins.'
        ) from None
    print(answer)


def _run(command: str, settings: Sequence[str]) -> str:
    """Run a command and return what to print; each needs other packages."""
    if command == "curves":
        from solo_margins.lens.curve_figure import draw_curves

        return f"Written: {draw_curves(settings)}"
    if command == "report":
        from solo_margins.lens.report import write_report

        return f"Written: {write_report(settings)}"
    from solo_margins.lens.health import advise

    return advise(settings)


def _help(command: str) -> str:
    """Return the part of the module's docstring about a command, all of it for any other word."""
    whole = str(__doc__)
    for part in whole.split("\n\n"):
        if f"solo_margins.lens {command} " in part:
            return part
    return whole


if __name__ == "__main__":
    run_cli(main, sys.argv[1:])
