"""The tour runs in a real kernel, and the outputs that it is stored with are those of its code."""

import base64
import io
import json
import re
from pathlib import Path

import pytest
from documented import ROOT, blocks, commands, headings, links
from documented_runs import is_known
from PIL import Image

nbformat = pytest.importorskip("nbformat", reason="the extra notebook is not installed")
pytest.importorskip("nbclient", reason="the extra notebook is not installed")
pytest.importorskip("matplotlib", reason="the extra lens is not installed")
pytest.importorskip("plotly", reason="the extra lens is not installed")

TOUR = ROOT / "examples" / "tour.ipynb"
EPOCHS = "EPOCHS = 20"
AGAIN = "run python scripts/execute_notebook.py examples/tour.ipynb"
# Run in the kernel after the last cell: does the last comparison say anything, and what is left?
CHECKS = """
import json

random = untrained.validation_features.values[0]
temporary.cleanup()
facts = {"same": torch.allclose(before, after), "trained": not torch.allclose(before, random)}
print(json.dumps({**facts, "left": os.listdir(tempfile.gettempdir())}))
"""


@pytest.fixture
def stored():
    return nbformat.read(TOUR, as_version=4)


@pytest.fixture
def page(stored, tmp_path):
    """The notebook's words as a page."""
    file = tmp_path / "tour.md"
    cells = [cell.source for cell in stored.cells if cell.cell_type == "markdown"]
    file.write_text("\n\n".join(cells) + "\n")
    return file


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


def test_outputs_name_no_machine_and_no_date(stored):
    outputs = [output for cell in code_cells(stored) for output in cell.outputs]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    words = [output.text if "text" in output else output.data["text/plain"] for output in outputs]
    of_a_machine = rf"{ROOT}|{Path.home()}|/tmp|/var|Warning|it/s|\d{{4}}-\d\d-\d\d|\d\d:\d\d"
    assert not [text for text in words if re.search(of_a_machine, text)]


def test_its_links_and_commands_lead_somewhere(page, composed):
    for _, target in links(page):
        path, _, anchor = target.partition("#")
        file = (TOUR.parent / path).resolve()
        assert file.exists(), path
        assert not anchor or anchor in set(headings(file)), (path, anchor)
    shown = list(commands(page))
    assert not [command.text for command in shown if not is_known(command)]
    [training] = [command for command in shown if command.program == "main_pretrain.py"]
    _, name, *settings = training.arguments
    assert composed(name, *settings).lens.enabled


@pytest.mark.parametrize(
    ("folder", "epochs"),
    [
        pytest.param("examples", "EPOCHS = 1", id="shortened"),
        pytest.param(".", EPOCHS, id="whole", marks=pytest.mark.full),
    ],
)
def test_it_runs(stored, page, folder, epochs, tmp_path, monkeypatch):
    from execute_notebook import execute

    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    executed = nbformat.from_dict(stored)
    assert sum(cell.source.count(EPOCHS) for cell in code_cells(stored)) == 1
    for cell in code_cells(executed):
        cell.update(source=cell.source.replace(EPOCHS, epochs), outputs=[], execution_count=None)
    python = [block.text for block in blocks(page) if block.language == "python"]
    assert python, "what is shown between the cells is run, too"
    executed.cells += [nbformat.v4.new_code_cell(source) for source in (*python, CHECKS)]
    beside = {file.name for file in TOUR.parent.iterdir()}
    execute(executed, ROOT / folder)

    assert {file.name for file in TOUR.parent.iterdir()} - beside <= {"__pycache__"}
    *cells, last = code_cells(executed)
    for cell, before in zip(cells, code_cells(stored), strict=False):
        assert cell.execution_count == before.execution_count
        assert kinds(cell) == kinds(before), f"{AGAIN}: {cell.source}"
    drawn = [picture for cell in cells for picture in pictures(cell)]
    assert len(drawn) > 15
    assert all(len(picture.convert("RGB").getcolors(2**24)) > 10 for picture in drawn)
    facts = json.loads(last.outputs[0].text)
    assert facts == {"same": True, "trained": True, "left": []}
