"""Settings chosen on held-out images: committed before the first run on test images."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml


def read(file: Path) -> dict[str, Any]:
    """Return what was chosen so far; nothing before --choose."""
    return yaml.safe_load(file.read_text()) if file.exists() else {}


def write(file: Path, chosen: Mapping[str, Any], command: str) -> None:
    """Write what was chosen, for the grids that follow.

    Args:
        file: where.
        chosen: what.
        command: the arguments of ``python scripts/reproduce`` that have chosen it.
    """
    head = f"# Written by `python scripts/reproduce {command}` from the results so far.\n"
    file.write_text(head + yaml.safe_dump(dict(chosen), sort_keys=False, allow_unicode=True))


def is_committed(file: Path) -> bool:
    """Return whether the file is what the last commit holds."""
    command = ["git", "-C", str(file.parent), "cat-file", "-p", f"HEAD:./{file.name}"]
    found = subprocess.run(command, capture_output=True, check=False)
    return found.returncode == 0 and file.exists() and found.stdout == file.read_bytes()
