"""Trains a linear probe on features that are extracted once: ``python -m solo_margins.probe …``."""

import sys

from solo_margins.cli import run_cli
from solo_margins.evaluation.probe import probe

if __name__ == "__main__":
    run_cli(probe, sys.argv[1:])
