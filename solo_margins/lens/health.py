"""Advice on a run from what the lens recorded of it.

python -m solo_margins.lens advise <run>
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from omegaconf import OmegaConf

from solo_margins.lens import records
from solo_margins.lens.rules import LASTING, HealthChecks

MOST_LINES = 5  # of advice


def advise(arguments: Sequence[str]) -> str:
    """Return advice on a run from what the lens recorded of it: one to five lines.

    Raises:
        ValueError: not one run is named, or the lens recorded nothing of it.
    """
    if len(arguments) != 1:
        raise ValueError("Name the folder of one run: advise RUN.")
    file = Path(arguments[0]) / records.FILE
    if not file.is_file():
        raise ValueError(f"{file} does not exist: advice needs a run with lens.enabled=true.")
    run = records.read(file.parent)
    if not run.observations:
        raise ValueError(f"{file} has no observations: advice needs a run with lens.enabled=true.")
    for problem in run.problems:
        print(problem, file=sys.stderr)
    settings = run.header.get("settings")
    if not isinstance(settings, dict):
        settings = {}
    checks = HealthChecks(OmegaConf.create(settings))
    for seen in run.observations:
        checks.check(seen)
    if not checks.symptoms:
        return (
            f"Nothing to advise after step {run.observations[-1].step:,}. "
            f"Most rules need {LASTING} observations after the warm-up and an epoch more."
        )
    lines = [f"{text[0].upper()}{text[1:]}." for text in checks.symptoms.values()]
    return "\n".join(lines[:MOST_LINES])
