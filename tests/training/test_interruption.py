"""Ctrl-C and SIGTERM: the step is finished, the checkpoint whole; the run goes on where it was."""

import functools
import os
import signal
import subprocess
from pathlib import Path

import pytest
import torch
from processes import started_programs
from stopped_runs import BATCHES, differences, interrupt, loaded, steps_of, wait_until

from solo_margins import cli, training

ROOT = Path(__file__).resolve().parents[2]
RESUMES = "auto_resume.enabled=true"
USED = (signal.SIGINT, signal.SIGTERM)


@pytest.mark.parametrize("number", USED)
def test_the_step_is_finished_and_the_run_goes_on(config, before_step, capsys, number):
    handlers = [signal.getsignal(one) for one in USED]
    # With tau = 0 a finished update leaves the momentum network equal to the online one.
    settings = ("max_epochs=3", "momentum.base_tau=0", "momentum.final_tau=0", RESUMES)
    before_step(BATCHES + 1, functools.partial(interrupt, number))
    with pytest.raises(SystemExit) as caught:
        cli.run_cli(training.pretrain, config(*settings))
    saved = caught.value.checkpoint
    assert caught.value.code == 128 + number
    assert [signal.getsignal(one) for one in USED] == handlers
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert str(saved) in last
    assert RESUMES in last
    assert list(saved.parent.glob("*.ckpt")) == [saved]
    state = loaded(saved)
    assert state["global_step"] == BATCHES + 2
    weights = state["state_dict"]
    online, teacher = (
        weights[f"{x}.convolution.weight"] for x in ("backbone", "momentum_backbone")
    )
    assert torch.equal(online, teacher)

    before_step()
    result = training.pretrain(config(*settings))
    assert result.folder == saved.parent
    final = loaded(result.checkpoint)
    assert (final["global_step"], final["epoch"]) == (3 * BATCHES, 2)
    assert list(result.folder.glob("*.ckpt")) == [result.checkpoint]


def test_a_validation_is_left_at_once_and_no_half_accuracy_is_logged(config, before_step):
    settings = (RESUMES, "knn_eval.enabled=true")
    whole = training.pretrain(config(*settings, "name=whole")).checkpoint
    before_step(BATCHES, interrupt, hook="validation_step")
    with pytest.raises(training.TrainingInterrupted) as caught:
        training.pretrain(config(*settings))
    assert steps_of(caught.value.checkpoint) == BATCHES
    before_step()
    result = training.pretrain(config(*settings))
    assert differences(whole, result.checkpoint) == []
    rows = (result.folder / "logs" / "version_1" / "metrics.csv").read_text().splitlines()
    column = rows[0].split(",").index("val_acc1")
    assert sum(bool(row.split(",")[column]) for row in rows[1:]) == 1


@pytest.mark.parametrize(
    ("number", "ends_at_once"), [(signal.SIGINT, True), (signal.SIGTERM, False)]
)
def test_a_second_ctrl_c_does_not_wait(config, before_step, number, ends_at_once):
    """A second SIGTERM does: Slurm may send more than one."""

    def twice():
        interrupt(number)
        interrupt(number)

    before_step(BATCHES + 1, twice)
    with pytest.raises(training.TrainingInterrupted) as caught:
        training.pretrain(config())
    assert steps_of(caught.value.checkpoint) == (BATCHES if ends_at_once else BATCHES + 2)


def test_without_checkpoints_it_says_so(config, before_step):
    before_step(1, interrupt)
    with pytest.raises(training.TrainingInterrupted, match=r"checkpoint\.enabled=false") as caught:
        training.pretrain(config("checkpoint.enabled=false"))
    assert caught.value.checkpoint is None


def test_a_handler_of_somebody_else_stays(config, before_step):
    heard = []
    before = signal.signal(signal.SIGTERM, lambda *_: heard.append(1))
    try:
        before_step(1, functools.partial(interrupt, signal.SIGTERM))
        training.pretrain(config("max_epochs=1"))
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
def test_a_job_of_slurm_saves_between_two_steps(config, before_step, slurm, number):
    before_step(1, functools.partial(interrupt, number))
    with pytest.raises(training.TrainingInterrupted) as caught:
        training.pretrain(config(RESUMES))
    assert caught.value.signal == number
    assert steps_of(caught.value.checkpoint) == 2
    assert not list(caught.value.checkpoint.parent.glob("hpc_ckpt*")), "Lightning saved as well"
    is_requeued = number == signal.SIGUSR1
    assert slurm.exists() == is_requeued
    if is_requeued:
        assert slurm.read_text().split() == ["requeue", "7"]
    before_step()
    assert training.pretrain(config(RESUMES)).resumed_from == caught.value.checkpoint


def test_the_last_line_is_not_that_of_the_progress_bar(written, tmp_path):
    """Of a program whose output and errors go to one terminal."""
    long = ("max_epochs=1000", "enable_progress_bar=true", "backbone.name=narrow_resnet10")
    with started_programs(tmp_path, stderr=subprocess.STDOUT) as start:
        process = start(ROOT / "main_pretrain.py", *written, *long)
        wait_until(lambda: list(tmp_path.glob("runs/*/*/*.ckpt")), process)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "Epoch" in said, "there was no progress bar"
    [last] = [line for line in said.split("\n") if "Interrupted: " in line]
    assert last.startswith("Interrupted: ")
    assert said.splitlines()[-1] == last
