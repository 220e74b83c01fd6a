"""Puts this checkout, and solo-learn's if ``SOLO_LEARN_SRC`` names one, first on the path."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
first = [str(ROOT)]
if os.environ.get("SOLO_LEARN_SRC"):
    first.insert(0, str(Path(os.environ["SOLO_LEARN_SRC"]).resolve()))
sys.path[:0] = [folder for folder in first if folder not in sys.path[: len(first)]]
inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*first, *filter(None, inherited)]))
