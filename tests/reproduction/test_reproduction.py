"""The papers' grids: every cell composes, runs once, and makes tables and figures by itself."""

import contextlib
import csv
import io
import itertools
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from solo_margins import results
from solo_margins.host.detect import form
from solo_margins.papers import Accuracy
from solo_margins.recipes import CELLS
from solo_margins.reproduction import plots, tables
from solo_margins.reproduction.experiments import EXPERIMENTS, Cell, Entry, Experiment
from solo_margins.reproduction.running import MINI, Job, Plan, Preset, jobs_of, missing, run

ROOT = Path(__file__).resolve().parents[2]
QUICK = Preset(
    "quick",
    (
        "optimizer.batch_size=16",
        "max_epochs=1",
        "limit_train_batches=2",
        "limit_val_batches=1",
        "scheduler.warmup_epochs=0",
        "data.num_workers=0",
    ),
    probe="fast",
    probe_settings=("passes=1", "max_epochs=2"),
)
BASELINE = Entry("SimCLR", "digits", Cell("simclr_margin", "digits", "baseline"), "digits")
SCALED = Entry(
    "SimCLR + pos.",
    "digits",
    Cell("simclr_margin", "digits", "pos", ("method_kwargs.margins.positive_scale=3",)),
    "digits",
    paper=Accuracy(90.0, 0.5),
    baseline="SimCLR",
)


@pytest.fixture
def plan(tmp_path):
    return Plan(QUICK, tmp_path / "results.jsonl", tmp_path / "work", ())


def recorded(plan, entry, seed, linear, knn, steps=100):
    planned = plan.record(entry.cell, seed, entry.probed_on)
    figures = {"linear_acc1": linear, "knn_acc1": knn, "steps": steps}
    return results.Record(planned.kind, planned.settings, planned.host, figures)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_cell_is_a_recipe_and_every_place_is_taken_once(name):
    entries = EXPERIMENTS[name].entries
    assert entries
    for entry in entries:
        assert entry.cell.variant in CELLS[entry.cell.method][entry.cell.data]
        if entry.baseline is not None:
            assert entry.baseline in {other.row for other in entries}
    places = [(entry.row, entry.column) for entry in entries]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize(
    ("name", "cells", "with_paper"),
    [("table2", 40, 40), ("table3", 40, 40), ("table4", 40, 40), ("table6", 4, 0)],
)
def test_tables_have_the_papers_cells_and_values(name, cells, with_paper):
    entries = EXPERIMENTS[name].entries
    assert len(entries) == cells
    assert sum(entry.paper is not None for entry in entries) == with_paper


def test_a_table_of_transfer_needs_no_other_pretraining():
    both = (*EXPERIMENTS["table3"].entries, *EXPERIMENTS["table4"].entries)
    jobs = jobs_of(both, seeds=[1, 2])
    assert len(jobs) == 80
    assert all(len(job.probed_on) == 2 for job in jobs)
    assert [job.seed for job in jobs] == [1] * 40 + [2] * 40


def test_cells_of_the_mini_preset_compose(composed):
    for cell in {entry.cell for entry in EXPERIMENTS["study"].entries}:
        chosen = [f"data={cell.data}", f"variant={cell.variant}"]
        cfg = composed(f"{cell.method}.yaml", *chosen, *MINI.settings, *cell.changes)
        assert (cfg.backbone.name, cfg.backbone.kwargs.width) == ("narrow_resnet10", 16)


def test_what_is_in_the_file_is_not_run_again(plan):
    jobs = jobs_of([BASELINE, SCALED], seeds=[1, 2])
    assert missing(jobs, plan) == jobs
    results.append(plan.file, recorded(plan, SCALED, 2, 50.0, 40.0))
    assert missing(jobs, plan) == jobs[:3]


def test_a_grid_runs_and_continues(plan):
    jobs = jobs_of([BASELINE, SCALED], seeds=[1])
    run(jobs[:1], plan, processes=1)
    [first] = results.read(plan.file)
    assert missing(jobs, plan) == jobs[1:]
    run(missing(jobs, plan), plan, processes=1)
    again, second = results.read(plan.file)
    assert again == first
    assert second.settings["changes"] == ["method_kwargs.margins.positive_scale=3"]
    assert second.figures["steps"] == 2
    assert 0 < second.figures["linear_acc1"] < 100
    assert first.figures["linear_acc1"] != second.figures["linear_acc1"]
    left = [path.name for path in plan.work.iterdir()]
    assert left == [".lock"], "checkpoints of finished cells are removed"


KILLED = """
import sys
from pathlib import Path
from solo_margins.reproduction.experiments import Cell
from solo_margins.reproduction.running import Job, Plan, Preset, run
if __name__ == "__main__":
    folder = Path(sys.argv[1])
    preset = Preset("long", ("max_epochs=10000", "data.num_workers=0"), probe="fast")
    job = Job(Cell("simclr_margin", "digits", "baseline"), 1, ("digits",))
    run([job], Plan(preset, folder / "results.jsonl", folder / "work", ()), 1)
"""


def test_a_grid_that_is_killed_leaves_nobody_at_work(plan, tmp_path):
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    mark = f"mark-{tmp_path.name}"
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", str(script), str(tmp_path)],
        env={**os.environ, "REPRODUCTION_TEST": mark, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: list(tmp_path.glob("work/*/*/*/args.json")), 120)
        assert len(marked(mark)) >= 2
        with pytest.raises(BlockingIOError, match="Another process runs cells in"):
            run(jobs_of([BASELINE], seeds=[1]), plan, processes=1)
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: not marked(mark), 30)


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def marked(text):
    """Return the running processes whose environment holds a text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if text.encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


def test_a_cell_that_fails_is_named_and_the_others_run(plan):
    bad = Job(
        Cell("simclr_margin", "digits", "pos", ("method_kwargs.margins.angular=9",)), 1, ("digits",)
    )
    good = jobs_of([BASELINE], seeds=[1])
    with pytest.raises(RuntimeError, match=r"1 of 2 cells failed.*margins.angular must be"):
        run([bad, *good], plan, processes=1)
    assert len(results.read(plan.file)) == 1


def test_tables_say_means_deviations_and_paired_differences(plan):
    records = [
        recorded(plan, BASELINE, 1, 50.0, 40.0),
        recorded(plan, BASELINE, 2, 54.0, 42.0),
        recorded(plan, SCALED, 1, 51.0, 40.0),
        recorded(plan, SCALED, 2, 56.0, 41.0),
        recorded(plan, SCALED, 3, 90.0, 90.0),  # no baseline with this seed
    ]
    items = tables.measured([BASELINE, SCALED], [1, 2, 3], plan, records)
    first, second = csv.DictReader(io.StringIO(tables.as_csv(items)))
    assert (first["linear_acc1"], first["linear_acc1_std"], first["seeds"]) == (
        "52.0",
        "2.828",
        "2",
    )
    assert first["linear_acc1_difference"] == first["paper"] == ""
    assert (second["linear_acc1_difference"], second["knn_acc1_difference"]) == ("1.5", "-0.5")
    assert second["linear_acc1_difference_std"] == "0.707"
    assert (second["paper"], second["paper_std"]) == ("90.0", "0.5")
    markdown = tables.as_markdown(items)
    assert "| SimCLR | digits | 2 | 52.0 ± 2.8 |  | 41.0 ± 1.4 |  |  |" in markdown
    assert "| +1.5 ± 0.7 |" in markdown
    assert "| 90.0 ± 0.5 |" in markdown


COMMITTED = ROOT / "docs" / "results" / "study"
SEEDS = {"scale_search": [1], "study": [1, 2, 3], "budgets": [1, 2, 3], "resnet18": [1, 2, 3]}


@pytest.mark.skipif(form() != "pypi", reason="they were measured on the release of solo-learn")
def test_the_committed_tables_are_those_of_the_committed_results():
    plan = Plan(MINI, COMMITTED / "results.jsonl", COMMITTED / "work", ())
    records = results.read(plan.file)
    shown = set()
    for name, seeds in SEEDS.items():
        entries = EXPERIMENTS[name].entries
        items = tables.measured(entries, seeds, plan, records)
        assert all(item.by_seed for item in items), name
        assert tables.as_csv(items) == (COMMITTED / f"{name}.csv").read_text()
        table = tables.as_markdown(items)
        assert (COMMITTED / f"{name}.md").read_text().endswith(table)
        if name != "scale_search":
            assert table in (ROOT / "docs" / "reproduction.md").read_text()
        shown |= {plan.record(e.cell, seed, e.probed_on).id for e in entries for seed in seeds}
    assert {record.id for record in records} <= shown, "no result is without a table"


def axis_entries():
    for x, y in itertools.product((1.0, 2.0, float("inf")), (0.5, 1.0)):
        changes = (f"method_kwargs.margins.positive_scale={x}", f"seed={y}")
        yield Entry(
            f"SimCLR, {x} {y}",
            "digits",
            Cell("simclr_margin", "digits", "pos", changes),
            "digits",
            x=x,
            y=y,
        )


@pytest.mark.parametrize(
    "experiment",
    [
        Experiment("bars", (BASELINE, SCALED)),
        Experiment("curve", tuple(axis_entries()), "s"),
        Experiment("heat map", tuple(axis_entries()), "s", "c"),
        Experiment("differences", (BASELINE, SCALED), "epochs"),
    ],
    ids=lambda experiment: experiment.title,
)
def test_every_kind_of_figure_is_drawn(plan, tmp_path, experiment):
    records = [
        recorded(plan, entry, seed, 50.0 + seed, 40.0)
        for entry in experiment.entries
        for seed in (1, 2)
    ]
    path = tmp_path / "figure.png"
    items = tables.measured(experiment.entries, [1, 2], plan, records)
    assert plots.draw(experiment, items, path)
    assert path.read_bytes().startswith(b"\x89PNG")
    nothing = tables.measured(experiment.entries, [7], plan, records)
    assert not plots.draw(experiment, nothing, tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


@pytest.mark.full
def test_the_papers_own_probe_can_be_asked_for(plan):
    settings = ("max_epochs=1", "limit_train_batches=2", "optimizer.batch_size=16")
    slow = replace(plan, preset=replace(QUICK, probe="linear", probe_settings=settings))
    run(jobs_of([BASELINE], seeds=[1]), slow, processes=1)
    [record] = results.read(plan.file)
    assert record.settings["probe"] == "linear"
    assert 0 < record.figures["linear_acc1"] < 100
