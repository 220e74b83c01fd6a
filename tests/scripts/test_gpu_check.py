"""The check for GPUs, in its form for CPUs: each part on its own, whatever happens to another."""

import functools
import json
import signal
import subprocess
import time
from pathlib import Path

import gpu_check
import pytest
from processes import started_programs

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def start(tmp_path):
    """Start the check in a process group of its own; its pages are in the folder ``pages``."""
    check = (ROOT / "scripts" / "gpu_check.py", "--cpu", "--output", "pages")
    with started_programs(tmp_path, stderr=subprocess.STDOUT) as run:
        yield functools.partial(run, *check)


@pytest.fixture
def pages(tmp_path):
    """What a check has left behind: the parts by name, and the page; nothing else is there."""

    def read():
        folder = tmp_path / "pages"
        assert {path.name for path in folder.iterdir()} == {"gpu_check.json", "gpu_check.md"}
        content = json.loads((folder / "gpu_check.json").read_text())
        parts = {part["part"]: part for part in content["parts"]}
        return parts, (folder / "gpu_check.md").read_text()

    return read


def test_a_part_that_fails_does_not_hide_the_others(start, pages, tmp_path):
    (tmp_path / "empty").mkdir()
    options = ("--parts", "epoch", "environment", "fp16", "losses", "--cifar10", "empty")
    process = start(*options)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 1, said
    parts, page = pages()
    assert {name: part["status"] for name, part in parts.items()} == {
        "environment": "ok",
        "losses": "ok",
        "fp16": "skipped",
        "epoch": "failed",
    }
    assert [line.split(":")[0].strip() for line in said.splitlines()[1:5]] == list(parts)
    assert "fp16: skipped (precision=16-mixed needs a GPU)" in said
    machine = {row["what"]: row["value"] for row in parts["environment"]["rows"]}
    assert machine["commit"]
    assert machine["torch"] in page
    assert {row["dtype"] for row in parts["losses"]["rows"]} >= {"float32", "bfloat16", "float16"}
    # The sentence of the run that could not start.
    assert "CIFAR-10" in parts["epoch"]["output"][-1]
    assert parts["epoch"]["output"][-1] in page


def test_a_part_that_does_not_end_is_ended(start, pages):
    process = start("--parts", "ranks", "losses", "--timeout", "0.2")
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 1, said
    parts, page = pages()
    assert [part["reason"] for part in parts.values()] == ["no end after 0.2 s"] * 2
    assert "**failed**. no end after 0.2 s" in " ".join(page.split())
    assert said.count("no end after") == 2


def test_an_interrupted_check_keeps_what_it_has(start, pages, tmp_path):
    process = start("--parts", "fp16", "image_folder")
    assert "2 parts" in process.stdout.readline()
    assert "fp16: skipped" in process.stdout.readline()
    [scratch] = (tmp_path / "pages").glob(".gpu_check-*")
    deadline = time.monotonic() + 60
    while not (scratch / "image_folder.log").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130, said
    parts, page = pages()
    assert {name: part["status"] for name, part in parts.items()} == {
        "fp16": "skipped",
        "image_folder": "interrupted",
    }
    assert "| image_folder | interrupted |" in page


def test_wrong_options_are_refused_in_a_sentence(start):
    process = start("--cifar10", "nowhere")
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said == "Error: --cifar10=nowhere is not an existing folder.\n"


def test_cells_of_a_table_may_hold_anything():
    lines = gpu_check.table([{"a": "x|y\nz"}, {"b": 2}]).splitlines()
    assert lines == ["| a | b |", "| --- | --- |", "| x\\|y z |  |", "|  | 2 |"]


@pytest.mark.full
def test_every_part_has_a_form_for_cpus(start, pages):
    process = start()
    said, _ = process.communicate(timeout=3000)
    assert process.returncode == 0, said
    parts, _ = pages()
    assert list(parts) == list(gpu_check.PARTS)
    without = [name for name, part in parts.items() if part["status"] != "ok"]
    assert without == ["fp16"]
