"""Probes a pretrained backbone on several data sets: ``python -m solo_margins.transfer …``."""

import sys

from solo_margins.cli import run_cli
from solo_margins.evaluation.transfer import transfer

if __name__ == "__main__":
    run_cli(transfer, sys.argv[1:])
