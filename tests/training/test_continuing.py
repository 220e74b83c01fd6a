"""A run that goes on from a checkpoint of another run is refused, or recorded as what it is."""

import json
import os
import signal

import pytest
import results_table
import torch
from solo.methods import METHODS

from solo_margins import results, training
from solo_margins.same_run import SETTINGS_IN_CHECKPOINT

BATCHES = 4
SCALE = "method_kwargs.margins.positive_scale"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "runs.jsonl"


@pytest.fixture
def study(config, file):
    """A short pretraining that is recorded."""

    def make(*overrides, method="mocov3_margin"):
        return config(f"method={method}", f"results={file}", "variant=own", *overrides)

    return make


@pytest.fixture
def interrupt_at(monkeypatch):
    """Let the method send SIGINT to its own process in a step, or in none."""
    original = METHODS["mocov3_margin"]

    def arrange(step):
        class Interrupted(original):
            def on_train_batch_start(self, batch, batch_idx):
                if self.trainer.global_step == step:
                    os.kill(os.getpid(), signal.SIGINT)
                return super().on_train_batch_start(batch, batch_idx)

        monkeypatch.setitem(METHODS, "mocov3_margin", Interrupted)

    return arrange


def without_settings(checkpoint):
    """Let a checkpoint be one that was saved before checkpoints knew their settings."""
    content = torch.load(checkpoint, weights_only=True)
    del content[SETTINGS_IN_CHECKPOINT]
    torch.save(content, checkpoint)


@pytest.mark.parametrize("known_by", ["checkpoint", "args.json"])
@pytest.mark.parametrize(
    ("change", "before", "now"),
    [
        (f"{SCALE}=20", "1", "20"),
        ("seed=6", "5", "6"),
        ("method_kwargs.temperature=0.3", "0.2", "0.3"),
        ("max_epochs=1", "2", "1"),
        ("precision=bf16-mixed", "null", "bf16-mixed"),
    ],
)
def test_other_settings_are_refused_by_name(study, file, known_by, change, before, now):
    first = training.pretrain(study("max_epochs=2"))
    if known_by == "checkpoint":
        (first.folder / "args.json").unlink()
    else:
        without_settings(first.checkpoint)
    resumes = f"resume_from_checkpoint={first.checkpoint}"
    with pytest.raises(ValueError) as caught:
        training.pretrain(study("max_epochs=4", change, resumes))
    said = str(caught.value)
    assert f"{change.partition('=')[0]}={before}, now {now}" in said
    assert "resume_with_changes=true" in said
    assert len(results.read(file)) == 1
    assert [path.name for path in first.folder.parent.iterdir()] == [first.folder.name]


def test_another_experiment_is_not_recorded_as_the_honest_one(study, file):
    first = training.pretrain(study("max_epochs=1"))
    other = ("max_epochs=2", f"{SCALE}=20")
    resumes = f"resume_from_checkpoint={first.checkpoint}"
    continued = study(*other, resumes, "resume_with_changes=true")
    assert training.pretrain(continued).resumed_from == first.checkpoint
    honest = training.pretrain(study(*other, "skip_finished=true"))
    assert not honest.is_skipped
    _, marked, whole = results.read(file)
    assert marked.id != whole.id
    assert marked.is_continued
    assert not whole.is_continued
    assert marked.settings["continued_from"] == {
        "step": BATCHES,
        "settings": {SCALE: 1, "max_epochs": 1},
    }
    # Each of them is found again by its own command.
    continued.skip_finished = True
    assert training.pretrain(continued).is_skipped
    assert training.pretrain(study(*other, "skip_finished=true")).is_skipped


def test_longer_training_is_another_run_and_marked_in_tables(study, linear_config, file):
    first = training.pretrain(study("max_epochs=1"))
    resumes = f"resume_from_checkpoint={first.checkpoint}"
    longer = training.pretrain(study("max_epochs=2", resumes))
    whole = training.pretrain(study("max_epochs=2"))
    assert longer.folder != whole.folder
    for run in (longer, whole):
        training.linear(linear_config(run.checkpoint, "max_epochs=1", f"results={file}"))
    lines = results.read(file)
    assert [line.variant for line in lines] == [
        "own",
        "own (continued)",
        "own",
        "own (continued)",
        "own",
    ]
    assert len({line.id for line in lines}) == len(lines)
    assert lines[1].settings["continued_from"]["settings"] == {"max_epochs": 1}
    assert lines[3].pretraining["continued_from"] == lines[1].settings["continued_from"]
    # Also where there is nothing to compare it with.
    assert "| own (continued) |" in results_table.table([lines[1]])
    assert "| own (continued) |" in results_table.table([lines[3]])


def test_more_steps_are_longer_training(study):
    first = training.pretrain(study("max_steps=2", "max_epochs=5"))
    resumes = f"resume_from_checkpoint={first.checkpoint}"
    longer = training.pretrain(study("max_steps=6", "max_epochs=5", resumes))
    assert torch.load(longer.checkpoint, weights_only=True)["global_step"] == 6
    resumes = f"resume_from_checkpoint={longer.checkpoint}"
    with pytest.raises(ValueError, match=r"max_steps=6, now 3"):
        training.pretrain(study("max_steps=3", "max_epochs=5", resumes))


def test_the_same_run_keeps_its_id(study, file, interrupt_at):
    whole = training.pretrain(study("name=whole"))
    interrupt_at(BATCHES + 1)
    with pytest.raises(training.TrainingInterrupted) as caught:
        training.pretrain(study())
    interrupt_at(-1)
    resumed = training.pretrain(study(f"resume_from_checkpoint={caught.value.checkpoint}"))
    one, other = results.read(file)
    assert one.id == other.id
    assert other.variant == "own"
    weights = [
        torch.load(run.checkpoint, weights_only=True)["state_dict"] for run in (whole, resumed)
    ]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_longer_run_that_was_interrupted_goes_on_as_itself(study, file, interrupt_at):
    first = training.pretrain(study("max_epochs=1"))
    longer = ("max_epochs=3", "auto_resume.enabled=true")
    resumes = f"resume_from_checkpoint={first.checkpoint}"
    interrupt_at(BATCHES + 1)
    with pytest.raises(training.TrainingInterrupted) as caught:
        training.pretrain(study(*longer, resumes))
    kept = caught.value.checkpoint
    # As the message says, and then by the very same command, as Slurm starts a job again.
    own = f"resume_from_checkpoint={kept} run_id={kept.parent.name}"
    assert own in str(caught.value)
    interrupt_at(2 * BATCHES + 1)
    with pytest.raises(training.TrainingInterrupted):
        training.pretrain(study(*longer[:1], *own.split()))
    interrupt_at(-1)
    result = training.pretrain(study(*longer, resumes))
    assert result.folder == kept.parent
    assert result.resumed_from.name.endswith("-ep2-interrupted.ckpt")
    _, line = results.read(file)
    assert line.settings["continued_from"] == {"step": BATCHES, "settings": {"max_epochs": 1}}


def test_what_was_continued_twice_says_both(study, file):
    checkpoint = training.pretrain(study("max_epochs=1")).checkpoint
    for epochs in (2, 3):
        resumes = f"resume_from_checkpoint={checkpoint}"
        checkpoint = training.pretrain(study(f"max_epochs={epochs}", resumes)).checkpoint
    *_, line = results.read(file)
    first = {"step": BATCHES, "settings": {"max_epochs": 1}}
    assert line.settings["continued_from"] == {
        "step": 2 * BATCHES,
        "settings": {"max_epochs": 2},
        "continued_from": first,
    }


def test_a_checkpoint_of_unknown_settings_is_refused(study, file):
    first = training.pretrain(study("max_epochs=1"))
    without_settings(first.checkpoint)
    (first.folder / "args.json").unlink()
    resumes = f"resume_from_checkpoint={first.checkpoint}"
    with pytest.raises(ValueError, match=r"Nothing says what .*\.ckpt was trained with"):
        training.pretrain(study(resumes))
    training.pretrain(study(resumes, "resume_with_changes=true"))
    *_, line = results.read(file)
    assert list(line.settings["continued_from"]) == ["sha256"]


def test_a_probe_of_another_backbone_is_not_continued(study, linear_config):
    backbones = [training.pretrain(study("max_epochs=1", f"seed={s}")).folder for s in (1, 2)]
    probe = training.linear(linear_config(backbones[0], "max_epochs=1"))
    resumes = f"resume_from_checkpoint={probe.checkpoint}"
    with pytest.raises(ValueError, match=r"pretrained_feature_extractor=.*, now "):
        training.linear(linear_config(backbones[1], resumes))
    longer = training.linear(linear_config(backbones[0], resumes))
    assert json.loads((longer.folder / "args.json").read_text())["continued_from"]["settings"] == {
        "max_epochs": 1
    }


def test_the_setting_must_be_true_or_false(study):
    first = training.pretrain(study("max_epochs=1"))
    resumes = f"resume_from_checkpoint={first.checkpoint}"
    with pytest.raises(ValueError, match="resume_with_changes must be"):
        training.pretrain(study(resumes, "resume_with_changes=perhaps"))


def test_our_configurations_have_the_setting_and_keep_their_ids(composed):
    from omegaconf import OmegaConf

    from solo_margins.same_run import defining_settings

    cfg = composed("simclr_margin.yaml")
    assert cfg.resume_with_changes is False
    settings = defining_settings(OmegaConf.to_container(cfg, resolve=True))
    assert "resume_with_changes" not in settings
    assert "continued_from" not in settings
