"""The papers' tables and figures: their grids of runs, how to run them, and what comes out."""

from pathlib import Path
from typing import Any

import yaml


def read_yaml(name: str) -> Any:
    """Return the content of a YAML file of this folder."""
    return yaml.safe_load((Path(__file__).parent / name).read_text())
