"""Measures the kNN accuracy of a pretrained backbone: ``python -m solo_margins.knn …``."""

import sys

from solo_margins.cli import run_cli
from solo_margins.evaluation.knn import knn

if __name__ == "__main__":
    run_cli(knn, sys.argv[1:])
