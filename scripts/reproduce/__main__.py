"""``python scripts/reproduce``: see :mod:`reproduce.command`."""

import os
import sys
import warnings
from pathlib import Path

if __name__ == "__main__":
    # solo-learn and its stack warn about each other's age, in every process that runs cells.
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    warnings.simplefilter("ignore")
    # Python puts the folder that it runs on its path; this package is one level up.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from reproduce.command import main

    main()
