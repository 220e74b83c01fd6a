"""The demo, twice: runs that have finished are used, the others are made again."""

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.full
def test_a_second_demo_makes_what_is_missing_and_says_the_same(python, tmp_path):
    output = tmp_path / "the demo"
    words = [ROOT / "scripts" / "demo.py", "--epochs", 1, "--seeds", 1, "--output", output]
    first = python(*words, timeout=900)
    assert "finished before" not in first
    # One run was interrupted before its end, of another the files were removed.
    (output / "s=20-seed1.jsonl").unlink()
    shutil.rmtree(output / "mocov3_margin" / "polarization-seed1")
    for name in ("demo.png", "report.html"):
        (output / name).unlink()
    second = python(*words, timeout=900)
    assert second.count("finished before") == 3
    assert rows(second) == rows(first)
    assert (output / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert (output / "report.html").stat().st_size > 100_000


def rows(printed):
    """Return the lines of the table, one for each kind of margins."""
    lines = printed[printed.index("effective scale") :].splitlines()
    return lines[1:6]
