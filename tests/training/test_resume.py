"""A run that is stopped, however roughly, ends with the weights of one that is not."""

import os
import random
import signal
import time
from pathlib import Path

import pytest
import torch
from method_parents import PARENTS, needs
from stopped_runs import BATCHES, Crash, crash, differences, interrupt, steps_of, wait_until

from solo_margins import training
from solo_margins.methods.linear import LinearClassifier

ROOT = Path(__file__).resolve().parents[2]
RESUMES = "auto_resume.enabled=true"


@pytest.fixture
def resumed(config, before_step):
    """Train a run that is stopped before given steps, and taken up again each time."""

    def train(settings, *stops, method="mocov3_margin"):
        for step, how in stops:
            before_step(step, how, method)
            with pytest.raises((training.TrainingInterrupted, Crash)):
                training.pretrain(config(*settings))
        before_step(method=method)
        result = training.pretrain(config(*settings))
        assert result.resumed_from is not None
        return result

    return train


@pytest.mark.parametrize("method", sorted(PARENTS))
def test_every_method_ends_with_the_same_weights(config, resumed, method):
    settings = [*needs(method), f"method={method}", "max_epochs=3", RESUMES]
    whole = training.pretrain(config(*settings, "name=whole")).checkpoint
    # Between two steps of the second epoch, with a checkpoint; and in the third, without one.
    stops = [(BATCHES + 1, interrupt), (2 * BATCHES + 2, crash)]
    result = resumed(settings, *stops, method=method)
    assert result.resumed_from.name.endswith("-ep1.ckpt")
    assert differences(whole, result.checkpoint) == []


@pytest.mark.parametrize(
    "changes",
    [
        ["accumulate_grad_batches=3", "max_epochs=4"],
        ["max_steps=10", "max_epochs=1000"],
        ["limit_train_batches=3"],
        ["data.format=tensors"],
        ["data.format=dali", "dali={device: cpu}"],
        pytest.param(["data.num_workers=2", "precision=bf16-mixed"], marks=pytest.mark.full),
        pytest.param(["checkpoint.frequency=2", "max_epochs=4"], marks=pytest.mark.full),
        pytest.param(["val_check_interval=2", "checkpoint.keep_prev=true"], marks=pytest.mark.full),
        pytest.param(["optimizer.name=lars"], marks=[pytest.mark.full, pytest.mark.repository]),
    ],
    ids=lambda changes: changes[0],
)
def test_whatever_the_trainer_is_told_the_weights_are_the_same(config, resumed, changes):
    if "data.format=dali" in changes:
        pytest.importorskip("nvidia.dali")
    settings = [
        *("max_epochs=3", RESUMES, *changes),
        "method_kwargs.schedules.positive_scale={kind: cosine, from: 0.5, to: 2}",
        "method_kwargs.schedules.temperature={kind: cycle, from: 0.1, to: 0.4, epochs: 2}",
    ]
    whole = training.pretrain(config(*settings, "name=whole")).checkpoint
    # The signal comes in the first of the batches that are accumulated for the third step.
    result = resumed(settings, (2, interrupt), (5, crash))
    assert differences(whole, result.checkpoint) == []


def test_a_step_draws_the_numbers_of_its_place(config, before_step):
    drawn = []
    for step in (1, 2, 2):
        before_step(step, lambda: drawn.append(torch.rand(()).item()))
        training.pretrain(config("max_epochs=1"))
    assert drawn[0] != drawn[1] == drawn[2]


def test_a_linear_probe_goes_on_as_well(config, linear_config, monkeypatch):
    checkpoint = training.pretrain(config("max_epochs=1")).checkpoint
    changes = ["max_epochs=3", "mixup=0.5", "finetune=true", "optimizer.lr=0.1", RESUMES]
    whole = training.linear(linear_config(checkpoint, "name=whole", *changes)).checkpoint
    step = LinearClassifier.training_step

    def stopping(self, *args, **kwargs):
        if self.trainer.global_step == BATCHES + 1:
            interrupt()
        return step(self, *args, **kwargs)

    monkeypatch.setattr(LinearClassifier, "training_step", stopping)
    with pytest.raises(training.TrainingInterrupted):
        training.linear(linear_config(checkpoint, *changes))
    monkeypatch.undo()
    result = training.linear(linear_config(checkpoint, *changes))
    assert result.resumed_from is not None
    assert differences(whole, result.checkpoint) == []


KILLS = 2
KILLED = [
    *("backbone.name=narrow_resnet18", "data.num_workers=2", "max_epochs=16", RESUMES),
    *("++run_id=killed", "++momentum.classifier=true"),
    "++knn_eval={enabled: true, k: 3, distance_func: euclidean}",
    "++method_kwargs.schedules={positive_scale: {kind: linear, from: 0.5, to: 2}, "
    "temperature: {kind: alignment, factor: 0.5}}",
]


def newest_epoch(folder):
    """Return the epoch of a run's newest checkpoint, -1 where there is none."""
    names = [checkpoint.stem for checkpoint in folder.glob("*.ckpt")]
    return max((int(name.split("-ep")[1].split("-")[0]) for name in names), default=-1)


def started_and_saved(start, command, folder):
    """Start a run and wait until it has saved a later epoch than those that there are."""
    epoch = newest_epoch(folder)
    process = start(*command)
    wait_until(lambda: newest_epoch(folder) > epoch, process)
    return process


def test_killed_at_random_points_it_ends_with_the_same_weights(start, finish, written, tmp_path):
    command = [ROOT / "main_pretrain.py", *written, *KILLED]
    unharmed = start(*command, "name=whole", "run_id=whole")
    chance = random.Random(20)
    runs = tmp_path / "runs" / "mocov3_margin"
    for _ in range(KILLS):
        process = started_and_saved(start, command, runs / "killed")
        # Somewhere in the next step, validation, or while the next checkpoint is written.
        time.sleep(chance.uniform(0, 0.6))
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "it has ended before it could be killed"
        process.communicate()
    # The last stop is a polite one, as Slurm's: to the whole group, workers included.
    process = started_and_saved(start, command, runs / "killed")
    os.killpg(process.pid, signal.SIGTERM)
    stopped = finish(process)
    assert stopped.code == 128 + signal.SIGTERM, stopped.err
    assert "Traceback" not in stopped.err
    [kept] = (runs / "killed").glob("*-interrupted.ckpt")
    assert str(kept.relative_to(tmp_path)) in stopped.err.strip().splitlines()[-1]
    final = finish(start(*command))
    assert final.code == 0, final.err
    assert f"Continuing from {kept.relative_to(tmp_path)}" in final.out
    assert finish(unharmed).code == 0
    [whole], [killed] = (list((runs / name).glob("*.ckpt*")) for name in ("whole", "killed"))
    assert differences(whole, killed) == []


def test_a_second_process_of_a_run_is_refused(start, finish, written, tmp_path):
    """As a job that is started again while the first is still running."""
    command = [ROOT / "main_pretrain.py", *written, "backbone.name=narrow_resnet10"]
    command += ["max_epochs=1000", RESUMES, "++run_id=one"]
    folder = tmp_path / "runs" / "mocov3_margin" / "one"
    first = started_and_saved(start, command, folder)
    # Its checkpoints come and go: the second must not even look at them. It stands still, so that
    # this one stays.
    os.killpg(first.pid, signal.SIGSTOP)
    (folder / "mocov3_margin-one-ep9999.ckpt").write_bytes(b"half written")
    second = finish(start(*command))
    os.killpg(first.pid, signal.SIGCONT)
    assert first.poll() is None
    assert "ep9999" not in second.out + second.err
    assert second.code == 1
    last = second.err.strip().splitlines()[-1]
    assert last.startswith("Error: ")
    assert f"process {first.pid} " in last
    assert not (folder / "logs" / "version_1").exists()
    os.killpg(first.pid, signal.SIGTERM)
    assert finish(first).code == 128 + signal.SIGTERM
    assert not (folder / ".lock").exists()


PAIR = ["accelerator=cpu", "devices=2", "strategy=ddp", "max_epochs=6", RESUMES, "++run_id=pair"]
CLUSTERS = ["++method_kwargs.num_prototypes=[3,3]", "++method_kwargs.kmeans_iters=2"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("method", "needed"), [("mocov3_margin", []), ("deepclusterv2_margin", CLUSTERS)]
)
def test_two_processes_stop_together_and_go_on(start, finish, written, tmp_path, method, needed):
    command = [ROOT / "main_pretrain.py", *written, *PAIR, *needed, f"method={method}"]
    command += ["backbone.name=narrow_resnet18"]
    unharmed = finish(start(*command, "name=whole", "run_id=whole"))
    assert unharmed.code == 0, unharmed.err
    runs = tmp_path / "runs" / method
    process = started_and_saved(start, command, runs / "pair")
    # Only one of them hears it.
    os.kill(process.pid, signal.SIGTERM)
    stopped = finish(process)
    assert stopped.code == 128 + signal.SIGTERM, stopped.err
    assert "Traceback" not in stopped.err
    [newest] = (runs / "pair").glob("*.ckpt")
    assert newest.stem.endswith("-interrupted")
    resumed = finish(start(*command))
    assert resumed.code == 0, resumed.err
    [whole], [pair] = (list((runs / name).glob("*.ckpt*")) for name in ("whole", "pair"))
    assert differences(whole, pair) == []
    assert steps_of(pair) == 6 * 2
