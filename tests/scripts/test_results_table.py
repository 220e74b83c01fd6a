"""A results file as a table: one line for each setting, means over seeds."""

from pathlib import Path

import results_table

from solo_margins import results

ROOT = Path(__file__).resolve().parents[2]
SCALE = "method_kwargs.margins.positive_scale"


def run(scale, seed, accuracy, variant="custom"):
    settings = {
        "method": "simclr_margin",
        "data": {"name": "digits"},
        "variant": variant,
        "method_kwargs": {"margins": {"positive_scale": scale}},
        "seed": seed,
    }
    return results.Record("pretrain", settings, "main", {"val_acc1": accuracy, "train_loss": 1.0})


def test_settings_that_differ_are_columns_and_seeds_are_not(python, tmp_path):
    file = tmp_path / "runs.jsonl"
    runs = [run(2, 1, 90.0), run(2, 2, 94.0), run(3, 1, 80.0), run(1, 1, 95.0, "baseline")]
    for record in (*runs, run(3, 1, 81.0)):  # of two runs with the same settings the later counts
        results.append(file, record)
    printed = python(ROOT / "scripts" / "results_table.py", file).splitlines()
    assert printed == [
        f"| kind | method | data | variant | {SCALE} | runs | val_acc1 |",
        "|---|---|---|---|---|---:|---:|",
        "| pretrain | simclr_margin | digits | custom | 2 | 2 | 92.0 ± 2.8 |",
        "| pretrain | simclr_margin | digits | custom | 3 | 1 | 81.0 |",
        "| pretrain | simclr_margin | digits | baseline | 1 | 1 | 95.0 |",
    ]


def test_a_figure_that_is_not_finite_is_not_averaged_away():
    runs = [run(2, 1, 90.0), run(2, 2, float("nan"))]
    assert results_table.table(runs).splitlines()[2].endswith("| custom | 2 | nan |")
    assert "val_acc1" not in results_table.table(runs[1:])


def test_other_figures_can_be_asked_for():
    head, _, line = results_table.table([run(2, 1, 90.0)], ["train_loss", "absent"]).splitlines()
    assert head == "| kind | method | data | variant | runs | train_loss | absent |"
    assert line.endswith("| 1 | 1.0 |  |")
