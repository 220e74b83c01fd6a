"""A run that goes on from a checkpoint of another run is refused, or recorded as what it is."""

import json

import pytest
import results_table
import torch
from stopped_runs import BATCHES, differences, interrupt, loaded

from solo_margins import results, training
from solo_margins.same_run import SETTINGS_IN_CHECKPOINT

SCALE = "method_kwargs.margins.positive_scale"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "runs.jsonl"


@pytest.fixture
def study(config, file):
    """A short pretraining that is recorded."""
    return lambda *overrides: config(f"results={file}", "variant=own", *overrides)


@pytest.fixture
def first(study):
    """A run of one epoch."""
    return training.pretrain(study("max_epochs=1"))


def resumes(run):
    return f"resume_from_checkpoint={run.checkpoint}"


def without_settings(checkpoint):
    """Let a checkpoint be one that was saved before checkpoints knew their settings."""
    content = loaded(checkpoint)
    del content[SETTINGS_IN_CHECKPOINT]
    torch.save(content, checkpoint)


@pytest.mark.parametrize("known_by", ["checkpoint", "args.json"])
def test_other_settings_are_refused_by_name(study, first, file, known_by):
    if known_by == "checkpoint":
        (first.folder / "args.json").unlink()
    else:
        without_settings(first.checkpoint)
    longer = ("max_epochs=4", resumes(first))
    for change, before, now in (
        (f"{SCALE}=20", "1", "20"),
        ("seed=6", "5", "6"),
        ("method_kwargs.temperature=0.3", "0.2", "0.3"),
        ("precision=bf16-mixed", "null", "bf16-mixed"),
        ("max_steps=3", "null", "3"),
    ):
        with pytest.raises(ValueError) as caught:
            training.pretrain(study(*longer, change))
        assert f"{change.partition('=')[0]}={before}, now {now}" in str(caught.value)
    with pytest.raises(ValueError, match="resume_with_changes must be"):
        training.pretrain(study(*longer, "resume_with_changes=perhaps"))
    assert len(results.read(file)) == 1
    assert [path.name for path in first.folder.parent.iterdir()] == [first.folder.name]


def test_another_experiment_is_not_recorded_as_the_honest_one(study, first, file):
    other = ("max_epochs=2", f"{SCALE}=20")
    continued = study(*other, resumes(first), "resume_with_changes=true")
    assert training.pretrain(continued).resumed_from == first.checkpoint
    honest = training.pretrain(study(*other, "skip_finished=true"))
    assert not honest.is_skipped
    _, marked, whole = results.read(file)
    assert marked.id != whole.id
    assert (marked.is_continued, whole.is_continued) == (True, False)
    assert marked.settings["continued_from"] == {
        "step": BATCHES,
        "settings": {SCALE: 1, "max_epochs": 1},
    }
    # Each of them is found again by its own command.
    continued.skip_finished = True
    assert training.pretrain(continued).is_skipped
    assert training.pretrain(study(*other, "skip_finished=true")).is_skipped


def test_longer_training_is_another_run_and_marked_in_tables(study, linear_config, first, file):
    longer = training.pretrain(study("max_epochs=2", resumes(first)))
    training.linear(linear_config(longer.checkpoint, "max_epochs=1", f"results={file}"))
    twice = training.pretrain(study("max_epochs=3", resumes(longer)))
    short, *lines = results.read(file)
    assert [line.variant for line in lines] == ["own (continued)"] * 3
    assert short.variant == "own"
    once = {"step": BATCHES, "settings": {"max_epochs": 1}}
    pretrained, probed, continued = lines
    assert pretrained.settings["continued_from"] == probed.pretraining["continued_from"] == once
    assert continued.settings["continued_from"] == {
        "step": 2 * BATCHES,
        "settings": {"max_epochs": 2},
        "continued_from": once,
    }
    assert len({longer.folder, twice.folder, first.folder}) == 3
    # Also where there is nothing to compare it with.
    for line in (pretrained, probed):
        assert "| own (continued) |" in results_table.table([line])


def test_an_interrupted_run_that_is_continued_keeps_its_id(study, file, before_step):
    whole = training.pretrain(study("name=whole"))
    before_step(BATCHES + 1, interrupt)
    with pytest.raises(training.TrainingInterrupted) as caught:
        training.pretrain(study())
    before_step()
    resumed = training.pretrain(study(f"resume_from_checkpoint={caught.value.checkpoint}"))
    one, other = results.read(file)
    assert one.id == other.id
    assert other.variant == "own"
    assert differences(whole.checkpoint, resumed.checkpoint) == []


def test_a_longer_run_that_was_interrupted_goes_on_as_itself(study, first, file, before_step):
    longer = ("max_epochs=3", "auto_resume.enabled=true")
    before_step(BATCHES + 1, interrupt)
    with pytest.raises(training.TrainingInterrupted) as caught:
        training.pretrain(study(*longer, resumes(first)))
    kept = caught.value.checkpoint
    # As the message says, and then by the very same command, as Slurm starts a job again.
    own = f"resume_from_checkpoint={kept} run_id={kept.parent.name}"
    assert own in str(caught.value)
    before_step(2 * BATCHES + 1, interrupt)
    with pytest.raises(training.TrainingInterrupted):
        training.pretrain(study(*longer[:1], *own.split()))
    before_step()
    result = training.pretrain(study(*longer, resumes(first)))
    assert result.folder == kept.parent
    assert result.resumed_from.name.endswith("-ep2-interrupted.ckpt")
    _, line = results.read(file)
    assert line.settings["continued_from"] == {"step": BATCHES, "settings": {"max_epochs": 1}}


def test_a_checkpoint_of_unknown_settings_is_refused(study, first, file):
    without_settings(first.checkpoint)
    (first.folder / "args.json").unlink()
    with pytest.raises(ValueError, match=r"\.ckpt .*resume_with_changes=true"):
        training.pretrain(study(resumes(first)))
    training.pretrain(study(resumes(first), "resume_with_changes=true"))
    *_, line = results.read(file)
    assert list(line.settings["continued_from"]) == ["sha256"]


def test_a_probe_of_another_backbone_is_not_continued(study, first, linear_config):
    other = training.pretrain(study("max_epochs=1", "seed=2"))
    probe = training.linear(linear_config(first.folder, "max_epochs=1"))
    with pytest.raises(ValueError, match=r"pretrained_feature_extractor=.*, now "):
        training.linear(linear_config(other.folder, resumes(probe)))
    longer = training.linear(linear_config(first.folder, resumes(probe)))
    args = json.loads((longer.folder / "args.json").read_text())
    assert args["continued_from"]["settings"] == {"max_epochs": 1}
