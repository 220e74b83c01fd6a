"""Results files: lines that survive many writers and broken ones."""

import json
import math
import os
import subprocess
import sys
import warnings
from datetime import datetime, timedelta, timezone

import pytest

from solo_margins import results
from solo_margins.results import Record, append, latest, read


def record(number=1, **settings):
    described = {"method": "byol_curv", "seed": number, **settings}
    return Record("pretrain", described, "main", {"val_acc1": float(number)}, seconds=1.25)


def test_a_line_comes_back_as_it_was(tmp_path):
    path = tmp_path / "new" / "folder" / "runs.jsonl"
    written = Record(
        kind="linear",
        settings={"pretrain_method": "byol", "data": {"name": "stl10"}, "pretraining": {"seed": 7}},
        host="pypi",
        figures={"val_acc1": 90.25, "loss": math.nan},
        seconds=12.5,
        versions={"torch": "2"},
        details={"checkpoint": "grün\n.ckpt"},
    )
    append(path, written)
    [found] = read(path)
    assert math.isnan(found.figures.pop("loss"))
    assert written.figures.pop("loss")
    assert found == written
    assert (found.method, found.data, found.pretraining["seed"]) == ("byol", "stl10", 7)
    when = datetime.fromisoformat(found.finished)
    assert timedelta(0) <= datetime.now(timezone.utc) - when < timedelta(minutes=1)
    # Other programs read it too: plain JSON, with the names that tables are made of in front.
    [line] = path.read_text().splitlines()
    content = json.loads(line, parse_constant=lambda name: pytest.fail(name))
    assert list(content)[:6] == ["id", "kind", "method", "data", "variant", "seed"]


def test_a_half_written_line_is_not_continued(tmp_path):
    path = tmp_path / "runs.jsonl"
    append(path, record(1))
    with path.open("ab") as file:
        file.write(record(2).to_json().encode()[:40])
    append(path, record(3))
    with pytest.warns(UserWarning, match="line 2"):
        assert [run.seed for run in read(path)] == [1, 3]


@pytest.mark.parametrize(
    "line", [b"{}", b"[1]", b"no JSON", b"\xff\xfe", b"\0\0", b'{"id": 1, "kind": ']
)
def test_other_unreadable_lines_are_named(tmp_path, line):
    path = tmp_path / "runs.jsonl"
    append(path, record(1))
    with path.open("ab") as file:
        file.write(line + b"\n\n")
    append(path, record(2))
    with pytest.warns(UserWarning, match="line 2"):
        assert [run.seed for run in read(path)] == [1, 2]


def test_keys_of_a_later_version_are_ignored(tmp_path):
    path = tmp_path / "runs.jsonl"
    content = {**json.loads(record(1).to_json()), "more": 1}
    path.write_text(json.dumps(content))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Whole, though without its newline.
        assert read(path) == [Record.from_json(json.dumps(content))]


def test_of_two_lines_of_an_id_the_last_counts(tmp_path):
    path = tmp_path / "runs.jsonl"
    for figure in (1.0, 2.0):
        append(path, Record("pretrain", {"seed": 1}, "main", {"val_acc1": figure}))
    append(path, record(5))
    found = latest(read(path))
    assert [run.figures["val_acc1"] for run in found.values()] == [2.0, 5.0]


def test_a_full_disk_leaves_no_half_line(tmp_path, monkeypatch):
    path = tmp_path / "runs.jsonl"
    append(path, record(1))
    before = path.read_bytes()
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:10]))
    with pytest.raises(OSError, match="No space left"):
        append(path, record(2))
    assert path.read_bytes() == before


def test_a_file_that_cannot_be_written_is_refused_in_a_sentence(tmp_path):
    with pytest.raises(ValueError, match=r"^results="):
        results.check_appendable(tmp_path)
    results.check_appendable(tmp_path / "runs.jsonl")
    with pytest.raises(ValueError, match=r"^results="):
        results.check_appendable(tmp_path / "runs.jsonl" / "x")


WRITER = """
import sys
from solo_margins.results import Record, append
path, writer = sys.argv[1:]
for number in range(100):
    settings = {"writer": int(writer), "seed": number, "long": "x" * 20000}
    append(path, Record("pretrain", settings, "main"))
"""


def test_many_processes_append_whole_lines(tmp_path):
    path = tmp_path / "runs.jsonl"
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [subprocess.Popen([*command, str(number)]) for number in range(4)]
    assert [writer.wait(timeout=60) for writer in writers] == [0] * 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = read(path)
    written = {(run.settings["writer"], run.seed) for run in found}
    assert len(found) == 400
    assert written == {(writer, number) for writer in range(4) for number in range(100)}


def test_reading_needs_no_torch(answer):
    code = "import sys, json, solo_margins.results; print(json.dumps('torch' in sys.modules))"
    assert answer(code) is False
