"""``python scripts/reproduce``: see :mod:`reproduce.command`."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python puts the folder that it runs on its path; this package is one level up.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from reproduce.command import main

    main()
