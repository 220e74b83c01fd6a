"""Ctrl-C and SIGTERM: the step is finished, the checkpoint whole; the run goes on where it was."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
from processes import started_programs
from solo.methods import METHODS

from solo_margins import cli, training
from solo_margins.methods.mocov3_margin import MoCoV3Margin

ROOT = Path(__file__).resolve().parents[2]

BATCHES = 4


@pytest.fixture
def interrupting(monkeypatch):
    """Let MoCo v3 send SIGINT to its own process in a step of one of its hooks."""

    def arrange(hook, when, times=1, number=signal.SIGINT):
        class Interrupting(MoCoV3Margin):
            pass

        original = getattr(MoCoV3Margin, hook)

        def interrupted(self, *args, **kwargs):
            if not self.trainer.sanity_checking and when(self.trainer):
                for _ in range(times):
                    os.kill(os.getpid(), number)
            return original(self, *args, **kwargs)

        setattr(Interrupting, hook, interrupted)
        monkeypatch.setitem(METHODS, "mocov3_margin", Interrupting)
        return lambda: monkeypatch.setitem(METHODS, "mocov3_margin", MoCoV3Margin)

    return arrange


def load(checkpoint):
    return torch.load(checkpoint, weights_only=True)


def test_the_step_is_finished_and_the_run_goes_on(config, interrupting):
    before = signal.getsignal(signal.SIGINT)
    settings = ("max_epochs=3", "auto_resume.enabled=true", "method_kwargs.temperature=0.25")
    stop = interrupting("training_step", lambda trainer: trainer.global_step == BATCHES + 1)
    with pytest.raises(training.TrainingInterrupted) as caught:
        training.pretrain(config(*settings))
    saved = caught.value.checkpoint
    assert signal.getsignal(signal.SIGINT) is before
    assert str(saved) in str(caught.value)
    assert list(saved.parent.glob("*.ckpt")) == [saved]
    state = load(saved)
    assert state["global_step"] == BATCHES + 2
    online, momentum = (
        state["state_dict"][f"{name}.convolution.weight"]
        for name in ("backbone", "momentum_backbone")
    )
    assert not torch.equal(online, momentum)

    stop()
    result = training.pretrain(config(*settings))
    assert result.folder == saved.parent
    final = load(result.checkpoint)
    assert (final["global_step"], final["epoch"]) == (3 * BATCHES, 2)
    assert list(result.folder.glob("*.ckpt")) == [result.checkpoint]


def test_the_saved_momentum_network_has_had_its_update(config, interrupting):
    # With tau = 0 a finished update leaves the momentum network equal to the online one.
    settings = ("momentum.base_tau=0", "momentum.final_tau=0", "max_epochs=3")
    interrupting("training_step", lambda trainer: trainer.global_step in (1, 2))
    with pytest.raises(training.TrainingInterrupted) as caught:
        training.pretrain(config(*settings))
    saved = caught.value.checkpoint
    state = load(saved)["state_dict"]
    key = "convolution.weight"
    assert torch.equal(state[f"backbone.{key}"], state[f"momentum_backbone.{key}"])
    # Auto-resume would find its own checkpoint, but one that is named comes first.
    with pytest.raises(training.TrainingInterrupted, match="resume_from_checkpoint=null continues"):
        training.pretrain(config(*settings, f"resume_from_checkpoint={saved}"))


def test_a_validation_is_left_at_once_and_no_half_accuracy_is_logged(config, interrupting):
    settings = ("auto_resume.enabled=true", "method_kwargs.temperature=0.25")
    stop = interrupting("validation_step", lambda trainer: trainer.current_epoch == 0)
    with pytest.raises(training.TrainingInterrupted) as caught:
        training.pretrain(config(*settings))
    assert load(caught.value.checkpoint)["global_step"] == BATCHES
    stop()
    result = training.pretrain(config(*settings))
    final = load(result.checkpoint)
    assert (final["global_step"], final["epoch"]) == (2 * BATCHES, 1)
    rows = (result.folder / "logs" / "version_1" / "metrics.csv").read_text().splitlines()
    column = rows[0].split(",").index("val_acc1")
    assert sum(bool(row.split(",")[column]) for row in rows[1:]) == 1


def test_a_second_ctrl_c_does_not_wait(config, interrupting):
    interrupting("training_step", lambda trainer: trainer.global_step == BATCHES + 1, times=2)
    with pytest.raises(training.TrainingInterrupted) as caught:
        training.pretrain(config())
    assert caught.value.checkpoint.name.endswith("-ep0.ckpt")
    assert load(caught.value.checkpoint)["global_step"] == BATCHES


def test_without_checkpoints_it_says_so(config, interrupting):
    interrupting("training_step", lambda trainer: trainer.global_step == 1)
    with pytest.raises(
        training.TrainingInterrupted, match=r"no checkpoint.*enabled=false"
    ) as caught:
        training.pretrain(config("checkpoint.enabled=false"))
    assert caught.value.checkpoint is None


def test_a_program_ends_with_code_130(config, interrupting, capsys):
    interrupting("training_step", lambda trainer: trainer.global_step == 1)
    with pytest.raises(SystemExit) as caught:
        cli.run_cli(training.pretrain, config())
    assert caught.value.code == 130
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("Interrupted: the last checkpoint is ")


def test_sigterm_is_like_ctrl_c_but_patient(config, interrupting, capsys):
    before = signal.getsignal(signal.SIGTERM)
    interrupting(
        "training_step",
        lambda trainer: trainer.global_step == 1,
        # Slurm may send more than one.
        times=2,
        number=signal.SIGTERM,
    )
    with pytest.raises(SystemExit) as caught:
        cli.run_cli(training.pretrain, config())
    assert caught.value.code == 128 + signal.SIGTERM
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("Interrupted: the last checkpoint is ")
    assert "auto_resume.enabled=true" in last
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_handler_of_somebody_else_stays(config, interrupting):
    heard = []
    before = signal.signal(signal.SIGTERM, lambda *_: heard.append(1))
    try:
        interrupting("training_step", lambda t: t.global_step == 1, number=signal.SIGTERM)
        training.pretrain(config())
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [1]


@pytest.fixture
def slurm(monkeypatch, tmp_path):
    """An environment as in a job of Slurm with one task; what scontrol is asked is written down."""
    programs = tmp_path / "programs"
    programs.mkdir()
    asked = tmp_path / "asked"
    (programs / "scontrol").write_text(f'#!/bin/sh\necho "$@" > {asked}\n')
    (programs / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    job = {"JOB_ID": "7", "JOB_NAME": "study", "NTASKS": "1", "NTASKS_PER_NODE": "1"}
    job |= {"PROCID": "0", "LOCALID": "0", "NODEID": "0", "JOB_NUM_NODES": "1"}
    for name, value in job.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    return asked


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_job_of_slurm_saves_between_two_steps(config, interrupting, slurm, number):
    settings = ("auto_resume.enabled=true", "method_kwargs.temperature=0.25")
    stop = interrupting("training_step", lambda t: t.global_step == 1, number=number)
    with pytest.raises(training.TrainingInterrupted) as caught:
        training.pretrain(config(*settings))
    assert caught.value.signal == number
    assert load(caught.value.checkpoint)["global_step"] == 2
    assert not list(caught.value.checkpoint.parent.glob("hpc_ckpt*")), "Lightning saved as well"
    requeued = number == signal.SIGUSR1
    assert slurm.exists() == requeued
    if requeued:
        assert slurm.read_text().split() == ["requeue", "7"]
        assert "queued again" in str(caught.value)
    stop()
    assert training.pretrain(config(*settings)).resumed_from == caught.value.checkpoint


def test_the_last_line_is_not_that_of_the_progress_bar(written, tmp_path):
    """Of a program whose output and errors go to one terminal."""
    long = ("max_epochs=1000", "enable_progress_bar=true", "backbone.name=narrow_resnet10")
    with started_programs(tmp_path, stderr=subprocess.STDOUT) as start:
        process = start(ROOT / "main_pretrain.py", *written, *long)
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("runs/*/*/*.ckpt")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "Epoch" in said, "there was no progress bar"
    assert said.splitlines()[-1].startswith("Interrupted: "), said[-300:]
    [before] = [line for line in said.split("\n") if "Interrupted: " in line]
    assert before.startswith("Interrupted: ")
