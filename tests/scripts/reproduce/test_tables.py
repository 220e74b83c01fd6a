"""Tables and figures from results alone."""

import csv
import io
import itertools
from dataclasses import replace

import pytest
from reproduce import plots, tables
from reproduce.experiments import Cell, Entry, Experiment


def test_tables_say_means_deviations_and_paired_differences(study, baseline, scaled, record):
    record(baseline, 1, 50.0, 40.0)
    record(baseline, 2, 54.0, 42.0)
    record(scaled, 1, 51.0, 40.0)
    record(scaled, 2, 56.0, 41.0)
    record(scaled, 3, 90.0, 90.0)  # no baseline with this seed
    items = tables.measured([baseline, scaled], study)
    first, second = csv.DictReader(io.StringIO(tables.as_csv(items, ["steps"])))
    assert [first[name] for name in ("linear_acc1", "linear_acc1_std", "seeds", "steps")] == [
        "52",
        "2.8284",
        "2",
        "100",
    ]
    assert first["linear_acc1_difference"] == first["paper"] == ""
    names = ("", "_low", "_high", "_p")
    found = [float(second[f"linear_acc1_difference{name}"]) for name in names]
    # t with one degree of freedom, times 0.7071 / √2
    assert found == pytest.approx([1.5, 1.5 - 6.353, 1.5 + 6.353, 0.5])
    assert second["knn_acc1_difference_p"] == "1"
    assert (second["paper"], second["paper_std"]) == ("90", "0.5")
    markdown = tables.as_markdown(items)
    assert "| SimCLR | digits | 2 | 52.0 ± 2.8 |  |  | 41.0 ± 1.4 |  |  |  |" in markdown
    assert "| +1.5 [-4.9, +7.9] | 0.500 |" in markdown
    assert "| 90.0 ± 0.5 |" in markdown


def test_intervals_and_p_are_those_of_scipy():
    stats = pytest.importorskip("scipy.stats")
    values = [0.3, -0.1, 0.8, 0.5, 0.2, 0.9]
    difference = tables.Difference.of(values)
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (difference.low, difference.high) == pytest.approx(expected, abs=1e-3)
    flipped = stats.permutation_test(
        (values,), lambda x: sum(x), permutation_type="samples", n_resamples=10_000
    )
    assert difference.p == pytest.approx(flipped.pvalue)


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
    [("rows", ()), ("differences", ("epochs",)), ("curve", ("s",)), ("heat map", ("s", "c"))],
)
def test_every_kind_of_figure_is_drawn(study, baseline, scaled, record, tmp_path, title, axes):
    pair = (baseline, scaled)
    entries = pair if title in ("rows", "differences") else tuple(axis_entries())
    experiment = Experiment(title, entries, *axes, figures=("steps",) if title == "curve" else ())
    for entry, seed in itertools.product(entries, (1, 2)):
        record(entry, seed, 50.0 + seed, 40.0)
    path = tmp_path / "figure.png"
    assert plots.draw(experiment, tables.measured(entries, study), path)
    assert path.read_bytes().startswith(b"\x89PNG")
    empty = replace(study, file=tmp_path / "empty.jsonl")
    nothing = tables.measured(entries, empty)
    assert not plots.draw(experiment, nothing, tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()
