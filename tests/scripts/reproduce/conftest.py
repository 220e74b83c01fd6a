"""A small study on the embedded digits."""

import pytest
from reproduce.experiments import Cell, Entry
from reproduce.papers import Accuracy
from reproduce.study import Preset, Study

from solo_margins import results

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


@pytest.fixture
def study(tmp_path):
    """Paths need no special characters of Hydra's to be avoided."""
    return Study(QUICK, tmp_path / "results.jsonl", tmp_path / "work, it's odd")


@pytest.fixture
def baseline():
    return Entry("SimCLR", "digits", Cell("simclr_margin", "digits", "baseline"), "digits")


@pytest.fixture
def scaled():
    change = "method_kwargs.margins.positive_scale=3"
    return Entry(
        "SimCLR + pos.",
        "digits",
        Cell("simclr_margin", "digits", "pos", (change,)),
        "digits",
        paper=Accuracy(90.0, 0.5),
        baseline="SimCLR",
    )


@pytest.fixture
def record(study):
    """Add a line to the results of the study."""

    def append(entry, seed, linear, knn, steps=100):
        figures = {"linear_acc1": linear, "knn_acc1": knn, "steps": steps}
        line = study.record(entry.cell, seed, entry.probed_on, figures=figures)
        results.append(study.file, line)

    return append
