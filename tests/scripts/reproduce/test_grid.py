"""Grids by Hydra's multirun: real runs on the embedded digits."""

import contextlib
import fcntl
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from reproduce import grid
from reproduce.experiments import Cell
from reproduce.study import PRESETS
from solo.methods.base import BaseMethod

from solo_margins import results

ROOT = Path(__file__).resolve().parents[3]
MARK = "REPRODUCTION_TEST"


def test_a_grid_runs_and_continues(study, baseline, scaled, capsys):
    """The first command runs one cell and is told of another; the second runs what is missing."""
    configured = BaseMethod.configure_callbacks
    assert grid.run(grid.targets_of([baseline]), [1], study) == []
    assert BaseMethod.configure_callbacks is configured, "solo-learn's class was changed"
    [first] = results.read(study.file)
    assert first.figures["turn"] > 0
    both = grid.targets_of([baseline, scaled])
    capsys.readouterr()
    assert grid.run(both, [1], study) == []
    progress = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Cell ")]
    assert progress[0].startswith("Cell 1 of 2, simclr_margin-digits-baseline seed 1: already in")
    assert progress[1].startswith("Cell 2 of 2, simclr_margin-digits-pos-")
    assert "linear" in progress[2]
    again, second = results.read(study.file)
    assert again == first
    assert second.settings["changes"] == ["method_kwargs.margins.positive_scale=3"]
    assert second.figures["steps"] == 2
    assert 0 < second.figures["linear_acc1"] < 100
    assert first.figures["linear_acc1"] != second.figures["linear_acc1"]
    left = [path.name for path in study.work.iterdir()]
    assert left == ["multirun.yaml"], "checkpoints of finished cells are removed"


def test_a_cell_that_fails_is_named_and_the_others_run(study, baseline, scaled, capsys):
    bad = Cell("simclr_margin", "digits", "pos", ("method_kwargs.margins.angular=9",))
    targets = {bad: ["digits"], **grid.targets_of([scaled, baseline])}
    folder = study.folder(scaled.cell, 1)
    folder.mkdir(parents=True)
    with open(folder / "output.txt", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # as another process would that runs it
        failed = grid.run(targets, [1], study)
    names = [grid.name_of(bad), grid.name_of(scaled.cell)]
    assert failed == [f"{name} seed 1" for name in names]
    assert [line.settings["variant"] for line in results.read(study.file)] == ["baseline"]
    errors = capsys.readouterr().err
    reasons = ("method_kwargs.margins.angular", str(folder))
    for name, reason in zip(names, reasons, strict=True):
        assert any(name in line and reason in line for line in errors.splitlines())


PROGRAM = """
import pickle, sys
sys.path.insert(0, sys.argv[1])
from reproduce import grid
study, targets = pickle.loads(bytes.fromhex(sys.argv[2]))
grid.run(targets, [1], study, processes=int(sys.argv[3]))
"""


@pytest.fixture
def start():
    """Run a grid in another process, whose environment marks all processes that it starts."""
    started = []

    def run(study, targets, processes=1):
        told = pickle.dumps((study, targets)).hex()
        words = [sys.executable, "-W", "ignore", "-c", PROGRAM, ROOT / "scripts", told]
        process = subprocess.Popen(
            [*map(str, words), str(processes)],
            env={**os.environ, MARK: str(study.work), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()


def longer(study, epochs):
    settings = (*study.preset.settings, f"max_epochs={epochs}")
    preset = replace(study.preset, settings=settings)
    return replace(study, preset=preset, keep_checkpoints=True)


def test_an_interrupted_cell_is_continued(study, baseline, start):
    study = longer(study, epochs=30)
    targets = grid.targets_of([baseline])
    process = start(study, targets)
    folder = study.folder(baseline.cell, 1)
    wait_until(lambda: list(folder.glob("*/*/*.ckpt")), 120)
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 128 + signal.SIGINT
    assert not study.file.exists()
    assert grid.run(targets, [1], study) == []
    assert "Continuing from" in (folder / "output.txt").read_text()
    assert results.read(study.file)[0].figures["steps"] == 60


@pytest.mark.full
@pytest.mark.skipif(
    find_spec("hydra_plugins.hydra_joblib_launcher") is None,
    reason="hydra-joblib-launcher is not installed",
)
def test_joblib_runs_cells_side_by_side_and_ends_with_its_command(study, baseline, scaled, start):
    targets = grid.targets_of([baseline, scaled])
    assert grid.run(targets, [1], study, processes=2) == []
    assert len(results.read(study.file)) == 2
    process = start(longer(study, epochs=10_000), targets, processes=2)
    wait_until(lambda: len(list(study.work.glob("*/*/*/args.json"))) == 2, 120)
    assert len(marked(study.work)) > 2
    process.kill()
    wait_until(lambda: not marked(study.work), 30)


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def marked(folder):
    """Return the running processes that belong to a grid in a folder."""
    text = f"{MARK}={folder}"
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if text.encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


@pytest.mark.full
def test_the_papers_own_probe_can_be_asked_for(study, baseline):
    settings = ("max_epochs=1", "limit_train_batches=2", "optimizer.batch_size=16")
    preset = replace(study.preset, probe="linear", probe_settings=settings)
    slow = replace(study, preset=preset)
    assert grid.run(grid.targets_of([baseline]), [1], slow) == []
    [record] = results.read(study.file)
    assert record.settings["probe"] == "linear"
    assert 0 < record.figures["linear_acc1"] < 100


def test_a_preset_sets_no_head_that_a_method_lacks():
    mini = PRESETS["mini"]
    head = "method_kwargs.pred_hidden_dim=512"
    assert head in grid.settings_for(Cell("byol_curv", "cifar10", "curv"), mini)
    simclr = grid.settings_for(Cell("simclr_margin", "cifar10", "pos"), mini)
    assert simclr == [setting for setting in mini.settings if setting != head]
