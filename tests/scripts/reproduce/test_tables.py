"""Tables and figures from results alone, the committed ones included."""

import csv
import io
import itertools
from pathlib import Path

import pytest
from reproduce import plots, tables
from reproduce.experiments import EXPERIMENTS, Cell, Entry, Experiment
from reproduce.study import PRESETS, Study

from solo_margins.host.detect import form

ROOT = Path(__file__).resolve().parents[3]


def test_tables_say_means_deviations_and_paired_differences(study, baseline, scaled, record):
    record(baseline, 1, 50.0, 40.0)
    record(baseline, 2, 54.0, 42.0)
    record(scaled, 1, 51.0, 40.0)
    record(scaled, 2, 56.0, 41.0)
    record(scaled, 3, 90.0, 90.0)  # no baseline with this seed
    items = tables.measured([baseline, scaled], [1, 2, 3], study)
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
    study = Study(PRESETS["mini"], COMMITTED / "results.jsonl", COMMITTED / "work")
    shown = set()
    for name, seeds in SEEDS.items():
        entries = EXPERIMENTS[name].entries
        items = tables.measured(entries, seeds, study)
        assert all(item.by_seed for item in items), name
        assert tables.as_csv(items) == (COMMITTED / f"{name}.csv").read_text()
        table = tables.as_markdown(items)
        assert (COMMITTED / f"{name}.md").read_text().endswith(table)
        if name != "scale_search":
            assert table in (ROOT / "docs" / "reproduction.md").read_text()
        shown |= {study.record(e.cell, seed, e.probed_on).id for e in entries for seed in seeds}
    assert study.recorded().keys() <= shown, "no result is without a table"


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
    ("title", "axes"),
    [("bars", ()), ("differences", ("epochs",)), ("curve", ("s",)), ("heat map", ("s", "c"))],
)
def test_every_kind_of_figure_is_drawn(study, baseline, scaled, record, tmp_path, title, axes):
    pair = (baseline, scaled)
    entries = pair if title in ("bars", "differences") else tuple(axis_entries())
    experiment = Experiment(title, entries, *axes)
    for entry, seed in itertools.product(entries, (1, 2)):
        record(entry, seed, 50.0 + seed, 40.0)
    path = tmp_path / "figure.png"
    assert plots.draw(experiment, tables.measured(entries, [1, 2], study), path)
    assert path.read_bytes().startswith(b"\x89PNG")
    nothing = tables.measured(entries, [7], study)
    assert not plots.draw(experiment, nothing, tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()
