"""Execute a notebook and store its outputs in it, without times and without names of this machine.

The file says which code its outputs are from, so that a test can tell when they are out of date.
"""

import argparse
import base64
import hashlib
import io
import os
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from PIL import Image

LONGEST_CELL = 600  # seconds


def fingerprint(notebook: Any) -> str:
    """Return a checksum of the code of a notebook."""
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return hashlib.sha256("\n\n".join(code).encode()).hexdigest()


def execute(notebook: Any, folder: Path) -> Any:
    """Execute a notebook in a kernel of its own, in a folder, and return it with its outputs.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
    """
    client = NotebookClient(
        notebook,
        timeout=LONGEST_CELL,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    )
    # As in an activated environment: a cell's command "python" is this one.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    client.execute(env={**os.environ, "PATH": path})
    # It names the version of Python that this machine has.
    notebook.metadata.language_info = {"name": "python"}
    notebook.metadata.executed_code = fingerprint(notebook)
    return notebook


def shrink_pictures(notebook: Any) -> None:
    """Store the pictures of a notebook with 256 colours, in about a third of the space."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    for data in (output["data"] for output in outputs if "data" in output):
        if "image/png" in data:
            picture = Image.open(io.BytesIO(base64.b64decode(data["image/png"]))).convert("RGB")
            small = io.BytesIO()
            picture.quantize(256, dither=Image.Dither.NONE).save(small, "png", optimize=True)
            data["image/png"] = base64.b64encode(small.getvalue()).decode()


def main() -> None:
    """Execute the notebook that the command line names, in place."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("notebook", type=Path)
    path = parser.parse_args().notebook
    notebook = nbformat.read(path, as_version=4)
    execute(notebook, path.resolve().parent)
    shrink_pictures(notebook)
    nbformat.write(notebook, path)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
