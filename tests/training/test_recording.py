"""Runs that add a line to a results file, and those that are skipped because of it."""

import json
import shutil

import pytest

from solo_margins import results, training
from solo_margins.versions import form, versions


@pytest.fixture
def file(tmp_path):
    return tmp_path / "out" / "runs.jsonl"


@pytest.fixture
def study(config, file):
    """A short pretraining that is recorded."""

    def make(*overrides):
        return config("max_epochs=1", f"results={file}", *overrides)

    return make


def test_a_finished_run_adds_its_line(study, file):
    result = training.pretrain(study("seed=3", "variant=own"))
    [line] = results.read(file)
    assert (line.kind, line.method, line.data, line.variant) == (
        "pretrain",
        "mocov3_margin",
        "custom",
        "own",
    )
    assert (line.seed, line.host) == (3, form())
    assert line.figures == result.metrics
    assert line.seconds > 0
    assert line.details["checkpoint"] == str(result.checkpoint)
    assert json.loads((result.folder / "args.json").read_text())["result_id"] == line.id
    assert line.id == results.run_id("pretrain", form(), line.settings)


def test_versions_are_those_in_use():
    import torch

    found = versions()
    assert found["solo-learn"] == ("1.0.2" if form() == "pypi" else "1.0.6")
    assert torch.__version__.startswith(found["torch"])
    assert found.keys() == {"solo_margins", "solo-learn", "torch", "lightning", "python"}


def test_a_finished_run_is_skipped_when_asked_to(study, file, capsys):
    first = training.pretrain(study("seed=3"))
    capsys.readouterr()
    again = training.pretrain(study("seed=3", "skip_finished=true", "data.num_workers=1"))
    assert again.is_skipped
    assert again.metrics == first.metrics
    assert again.checkpoint == first.checkpoint
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith(f"Skipped pretrain mocov3_margin custom seed=3: {file} has it, 20")
    assert not training.pretrain(study("seed=4", "skip_finished=true")).is_skipped
    assert not training.pretrain(study("seed=3")).is_skipped
    assert [line.seed for line in results.read(file)] == [3, 4, 3]


def test_what_failed_is_not_recorded(study, file):
    with pytest.raises(ValueError):
        training.pretrain(study("optimizer.batch_size=64"))
    assert results.read(file) == []


def test_a_recorded_run_is_resumed_by_the_very_same_run_only(study):
    settings = ("auto_resume.enabled=true", "gradient_clip_val=1.0")
    first = training.pretrain(study(*settings, "limit_train_batches=2"))
    # Auto-resume alone does not look at it.
    other = training.pretrain(study(*settings, "limit_train_batches=3"))
    assert other.folder != first.folder
    assert other.resumed_from is None


def test_a_run_that_was_ended_behind_its_last_step_is_measured(study, file):
    settings = ("auto_resume.enabled=true", "seed=9")
    first = training.pretrain(study(*settings))
    file.unlink()
    again = training.pretrain(study(*settings))
    assert again.checkpoint == first.checkpoint == again.resumed_from
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
    assert (line.kind, line.method, line.variant, line.seed) == (
        "linear",
        "mocov3_margin",
        "own",
        5,
    )
    assert line.pretraining["seed"] == 2
    assert line.pretraining["checkpoint"] == "ep0"
    assert line.details["pretraining_id"] == pretraining.id
    assert line.figures["val_acc1"] == probe.metrics["val_acc1"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["skip_finished=true", "results=null"], r"skip_finished=true needs .* results=<file>"),
        (["results=/dev/null/runs.jsonl"], r"results=/dev/null/runs\.jsonl cannot be written"),
        (["results=/"], r"results=/ cannot be written \(Is a directory"),
    ],
)
def test_mistakes_are_explained_before_the_run(study, overrides, message):
    with pytest.raises(ValueError, match=message) as caught:
        training.pretrain(study(*overrides))
    assert len(str(caught.value).splitlines()) == 1
