"""The sweep script: every cell of the grid once, also after an interruption."""

import csv
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "sweep.py"
QUICK = [
    "limit_train_batches=2",
    "max_epochs=1",
    "optimizer.batch_size=16",
    "data.num_workers=0",
    "scheduler.warmup_epochs=0",
]


@pytest.mark.full
def test_a_sweep_runs_what_is_missing(python, tmp_path):
    output = tmp_path / "sweep.csv"
    scale = "method_kwargs.margins.positive_scale"
    options = ["--config-name", "simclr_margin.yaml", "--output", output, "--processes", 1]
    python(SCRIPT, *options, *QUICK, f"{scale}=1,2")
    rows = list(csv.DictReader(output.open()))
    assert [row[scale] for row in rows] == ["1", "2"]
    assert all(0 <= float(row["knn_acc1"]) <= 100 for row in rows)
    lines = output.read_text().splitlines()
    # As if it had been stopped before the last run.
    output.write_text("\n".join(lines[:-1]) + "\n")
    printed = python(SCRIPT, *options, *QUICK, f"{scale}=1,2")
    again = output.read_text().splitlines()
    assert again[:-1] == lines[:-1]
    assert again[-1].split(",")[:3] == lines[-1].split(",")[:3]
    assert f"{scale}  runs  online  kNN" in printed
