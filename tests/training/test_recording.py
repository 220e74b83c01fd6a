"""Runs that add a line to a results file, and those that are skipped because of it."""

import json
import shutil

import pytest
import torch

from solo_margins import results, training
from solo_margins.versions import form, versions


@pytest.fixture
def file(tmp_path):
    return tmp_path / "out" / "runs.jsonl"


@pytest.fixture
def study(config, file):
    """A short pretraining that is recorded."""
    return lambda *overrides: config("max_epochs=1", f"results={file}", *overrides)


def test_a_finished_run_adds_its_line_and_is_skipped_when_asked_to(study, file, capsys):
    first = training.pretrain(study("seed=3", "variant=own"))
    [line] = results.read(file)
    assert (line.kind, line.method, line.data) == ("pretrain", "mocov3_margin", "custom")
    assert (line.variant, line.seed, line.host) == ("own", 3, form())
    assert line.figures == first.metrics
    assert line.seconds > 0
    assert line.details["checkpoint"] == str(first.checkpoint)
    assert json.loads((first.folder / "args.json").read_text())["result_id"] == line.id
    assert line.versions["solo-learn"] == ("1.0.2" if form() == "pypi" else "1.0.6")
    assert torch.__version__.startswith(line.versions["torch"])
    assert line.versions == versions()

    capsys.readouterr()
    skips = ("variant=own", "skip_finished=true", "data.num_workers=1")
    again = training.pretrain(study("seed=3", *skips))
    assert again.is_skipped
    assert (again.metrics, again.checkpoint) == (first.metrics, first.checkpoint)
    [said] = capsys.readouterr().out.splitlines()
    assert "seed=3" in said
    assert str(file) in said
    assert not training.pretrain(study("seed=4", *skips)).is_skipped
    assert not training.pretrain(study("seed=3", "variant=own")).is_skipped
    assert [line.seed for line in results.read(file)] == [3, 4, 3]


def test_what_failed_is_not_recorded(study, file):
    with pytest.raises(ValueError):
        training.pretrain(study("optimizer.batch_size=64"))
    assert results.read(file) == []


def test_a_run_that_was_ended_behind_its_last_step_is_measured(study, file, capsys):
    settings = ("auto_resume.enabled=true", "seed=9")
    first = training.pretrain(study(*settings))
    said = capsys.readouterr().out.splitlines()
    file.unlink()
    again = training.pretrain(study(*settings))
    assert again.checkpoint == first.checkpoint == again.resumed_from
    assert again.checkpoint.is_file()
    assert said[-1] in capsys.readouterr().out
    [line] = results.read(file)
    assert line.figures["val_acc1"] == first.metrics["val_acc1"]


def test_a_probe_is_known_by_its_pretraining_wherever_the_checkpoint_lies(
    study, linear_config, file, tmp_path
):
    pretrained = training.pretrain(study("variant=own", "seed=2"))
    copy = tmp_path / "elsewhere"
    shutil.copytree(pretrained.folder, copy)
    settings = (f"results={file}", "skip_finished=true", "seed=5", "max_epochs=1")
    probe = training.linear(linear_config(pretrained.folder, *settings))
    assert training.linear(linear_config(copy, *settings)).is_skipped
    assert not training.linear(linear_config(copy, *settings, "optimizer.lr=1")).is_skipped
    pretraining, line, _ = results.read(file)
    assert (line.kind, line.method) == ("linear", "mocov3_margin")
    assert (line.variant, line.seed, line.pretraining["seed"]) == ("own", 5, 2)
    assert line.pretraining["checkpoint"] == "ep0"
    assert line.details["pretraining_id"] == pretraining.id
    assert line.figures["val_acc1"] == probe.metrics["val_acc1"]


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["skip_finished=true", "results=null"], r"skip_finished=true .* results="),
        (["results=/dev/null/runs.jsonl"], r"results=/dev/null/runs\.jsonl"),
        (["results=/"], r"results=/ "),
    ],
)
def test_mistakes_are_explained_before_the_run(study, overrides, named):
    with pytest.raises(ValueError, match=named) as caught:
        training.pretrain(study(*overrides))
    assert len(str(caught.value).splitlines()) == 1
