"""Files are complete or not there, and lines survive whatever lies between them."""

import json
import os
import signal
import subprocess
import sys

import pytest

from solo_margins.files import append_line, complete_file, held_alone, output_path, read_lines


def test_nothing_is_left_behind_where_writing_fails(tmp_path):
    kept = tmp_path / "kept.svg"
    kept.write_text("an older picture")

    def interrupted(path):
        with complete_file(path) as unfinished:
            unfinished.write_text("half")
            raise KeyboardInterrupt

    for path in (kept, tmp_path / "new.png"):
        with pytest.raises(KeyboardInterrupt):
            interrupted(path)
    assert kept.read_text() == "an older picture"
    assert list(tmp_path.iterdir()) == [kept]


def test_a_complete_file_replaces_the_older_one(tmp_path):
    path = tmp_path / "new" / "a.json"
    for text in ("first", "second"):
        with complete_file(path) as unfinished:
            unfinished.write_text(text)
            assert unfinished.suffix == ".json"
        assert path.read_text() == text
    assert os.listdir(path.parent) == ["a.json"]


def test_lines_that_cannot_be_read_are_named(tmp_path):
    path = tmp_path / "lines.jsonl"
    append_line(path, "[1]")
    with path.open("ab") as file:
        file.write(b"\xff\xfe\n\n{}\n" + b"[" * 100_000 + b"\n[2")
    numbers, problems = read_lines(path, lambda line: json.loads(line)[0])
    assert numbers == [1]
    states = ["2 is unreadable", "4 is unreadable", "5 is unreadable", "6 is half-written"]
    assert [part in problem for part, problem in zip(states, problems, strict=True)] == [True] * 4
    append_line(path, "[3]", sync=True)
    assert read_lines(path, lambda line: json.loads(line)[0])[0] == [1, 3], "not continued"


def test_an_output_must_be_a_file_of_a_known_kind(tmp_path):
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(ValueError, match="is a folder"):
        output_path(str(tmp_path / "folder.png"), (".png", ".svg"))
    with pytest.raises(ValueError, match=r"ends with \.png or \.svg, got 'a'"):
        output_path("a", (".png", ".svg"))
    assert output_path("a.PNG", (".png", ".svg")).name == "a.PNG"


HOLDER = """
import os, sys, time
from pathlib import Path
from solo_margins.files import held_alone
with held_alone(Path(sys.argv[1])) as holder:
    assert holder is None
    if os.fork() == 0:
        # As a worker that loads data, which outlives a killed process for some seconds.
        time.sleep(30)
        os._exit(0)
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_is_held_by_one_process_and_ends_with_it(tmp_path):
    path = tmp_path / ".lock"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, path],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout.readline() == "held\n"
        with held_alone(path) as holder:
            assert str(process.pid) in holder
        assert path.exists(), "it is not the second process's to remove"
        process.kill()
        process.wait()
        with held_alone(path) as holder:
            assert holder is None
        assert not path.exists()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
