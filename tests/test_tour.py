"""The tour runs in a real kernel, and the outputs that it is stored with are those of its code."""

import ast
import base64
import io
import re
from pathlib import Path

import pytest
from documented import ROOT, headings, links
from PIL import Image

nbformat = pytest.importorskip("nbformat", reason="the extra notebook is not installed")
pytest.importorskip("nbclient", reason="the extra notebook is not installed")
pytest.importorskip("matplotlib", reason="the extra lens is not installed")
pytest.importorskip("plotly", reason="the extra lens is not installed")

TOUR = ROOT / "examples" / "tour.ipynb"
EPOCHS = "EPOCHS = 20"
AGAIN = "run python scripts/execute_notebook.py examples/tour.ipynb"
# Run in the kernel after the last cell: are the exported weights those of the run?
CHECK = """
found = torch.load(next(Path(runs["pos_curv"]).glob("*.ckpt")))["state_dict"]
weights = model.state_dict()
assert weights
assert all(torch.equal(found[f"backbone.{name}"], weight) for name, weight in weights.items())
folder.cleanup()
"""


@pytest.fixture
def stored():
    return nbformat.read(TOUR, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def pictures(cell):
    shown = [output.data for output in cell.outputs if "data" in output]
    encoded = [data["image/png"] for data in shown if "image/png" in data]
    return [Image.open(io.BytesIO(base64.b64decode(one))) for one in encoded]


def kinds(cell):
    """What a cell has put out, in order."""
    return [output.get("name") or sorted(output.data) for output in cell.outputs]


def test_outputs_are_stored_of_the_code_that_is_stored(stored):
    from execute_notebook import fingerprint

    assert stored.metadata.executed_code == fingerprint(stored), AGAIN
    counts = [cell.execution_count for cell in code_cells(stored)]
    assert counts == list(range(1, len(counts) + 1)), AGAIN
    assert TOUR.stat().st_size < 500_000


def test_outputs_name_no_machine_and_no_date(stored):
    outputs = [output for cell in code_cells(stored) for output in cell.outputs]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    words = [output.text if "text" in output else output.data["text/plain"] for output in outputs]
    of_a_machine = rf"{ROOT}|{Path.home()}|/tmp|/var|Warning|it/s|\d{{4}}-\d\d-\d\d|\d\d:\d\d"
    assert not [text for text in words if re.search(of_a_machine, text)]


def test_its_links_lead_somewhere(stored, tmp_path):
    page = tmp_path / "tour.md"
    words = [cell.source for cell in stored.cells if cell.cell_type == "markdown"]
    page.write_text("\n\n".join(words) + "\n")
    for _, target in links(page):
        path, _, anchor = target.partition("#")
        file = (TOUR.parent / path).resolve()
        assert file.exists(), path
        assert not anchor or anchor in set(headings(file)), (path, anchor)


def test_it_uses_public_names_alone(stored):
    public = "\n".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    for cell in code_cells(stored):
        python = re.sub(r"^( *)[%!].*$", r"\1pass", cell.source, flags=re.M)
        for node in ast.walk(ast.parse(python)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("solo_margins"):
                for name in node.names:
                    assert f"::: {node.module}.{name.name}" in public, f"{node.module}.{name.name}"


@pytest.mark.parametrize(
    "epochs",
    [
        pytest.param("EPOCHS = 1", id="shortened"),
        pytest.param(EPOCHS, id="whole", marks=pytest.mark.full),
    ],
)
def test_it_runs(stored, epochs, tmp_path, monkeypatch):
    from execute_notebook import execute

    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    executed = nbformat.from_dict(stored)
    assert sum(cell.source.count(EPOCHS) for cell in code_cells(stored)) == 1
    for cell in code_cells(executed):
        cell.update(source=cell.source.replace(EPOCHS, epochs), outputs=[], execution_count=None)
    executed.cells.append(nbformat.v4.new_code_cell(CHECK))
    (tmp_path / "beside").mkdir()
    execute(executed, tmp_path / "beside")

    *cells, _ = code_cells(executed)
    for cell, before in zip(cells, code_cells(stored), strict=True):
        assert cell.execution_count == before.execution_count
        assert kinds(cell) == kinds(before), f"{AGAIN}: {cell.source}"
    drawn = [picture for cell in cells for picture in pictures(cell)]
    assert len(drawn) == 4
    assert all(len(picture.convert("RGB").getcolors(2**24)) > 10 for picture in drawn)
    # All files are in its folder, which the last cell has removed.
    assert not list((tmp_path / "beside").iterdir())
    assert not list(temporary.iterdir())
