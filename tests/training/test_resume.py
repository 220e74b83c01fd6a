"""A training that is stopped, however roughly, ends with the weights of one that is not."""

import os
import random
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from method_parents import PARENTS, needs
from solo.methods import METHODS

from solo_margins import training
from solo_margins.data.datamodule import RunData
from solo_margins.methods.linear import LinearClassifier
from solo_margins.training.checked_config import checked_pretraining
from solo_margins.training.pretrain import parsed_pretraining

ROOT = Path(__file__).resolve().parents[2]
BATCHES = 4
"""Of an epoch of the small images."""


class Crash(Exception):
    """Stands for anything that ends a process without a word."""


@pytest.fixture
def stopping(monkeypatch):
    """Let a method stop the training that it is in, before a step of a given number."""

    def arrange(method, step, how):
        original = METHODS[method]
        original = getattr(original, "unstopped", original)

        class Stopping(original):
            unstopped = original

            def on_train_batch_start(self, batch, batch_idx):
                if self.trainer.global_step == step:
                    how()
                return super().on_train_batch_start(batch, batch_idx)

        monkeypatch.setitem(METHODS, method, Stopping)

    return arrange


def crash():
    raise Crash


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def weights_of(checkpoint):
    return torch.load(checkpoint, weights_only=True)["state_dict"]


def differences(one, other):
    """Names of all tensors that differ in a bit."""
    assert one.keys() == other.keys()
    return [name for name in one if not torch.equal(one[name], other[name])]


@pytest.mark.parametrize("method", sorted(PARENTS))
def test_every_method_ends_with_the_same_weights(config, stopping, method):
    settings = [*needs(method), f"method={method}", "max_epochs=3", "auto_resume.enabled=true"]
    whole = training.pretrain(config(*settings, "name=whole")).checkpoint
    # Between two steps of the second epoch, with a checkpoint; and in the third, without one.
    stopping(method, BATCHES + 1, interrupt)
    with pytest.raises(training.TrainingInterrupted) as caught:
        training.pretrain(config(*settings))
    middle = torch.load(caught.value.checkpoint, weights_only=True)
    assert middle["global_step"] == BATCHES + 2
    stopping(method, 2 * BATCHES + 2, crash)
    with pytest.raises(Crash):
        training.pretrain(config(*settings))
    stopping(method, -1, crash)
    resumed = training.pretrain(config(*settings))
    assert resumed.resumed_from.name.endswith("-ep1.ckpt")
    assert resumed.folder == caught.value.checkpoint.parent
    assert differences(weights_of(whole), weights_of(resumed.checkpoint)) == []


def resumed_weights(config, stopping, settings, *stops):
    """Weights of a run that was stopped in given ways before given steps, and taken up again."""
    for step, how in stops:
        stopping("mocov3_margin", step, how)
        with pytest.raises((training.TrainingInterrupted, Crash)):
            training.pretrain(config(*settings))
    stopping("mocov3_margin", -1, crash)
    result = training.pretrain(config(*settings))
    assert result.resumed_from is not None
    return weights_of(result.checkpoint)


@pytest.mark.parametrize(
    "changes",
    [
        ["accumulate_grad_batches=3"],
        ["max_steps=10", "max_epochs=1000"],
        ["limit_train_batches=3"],
        pytest.param(["data.num_workers=2"], marks=pytest.mark.full),
        pytest.param(["optimizer.name=lars"], marks=[pytest.mark.full, pytest.mark.repository]),
        pytest.param(["precision=bf16-mixed"], marks=pytest.mark.full),
        pytest.param(["checkpoint.frequency=2"], marks=pytest.mark.full),
        pytest.param(["val_check_interval=2"], marks=pytest.mark.full),
        pytest.param(["checkpoint.keep_prev=true"], marks=pytest.mark.full),
    ],
    ids=lambda changes: changes[0],
)
def test_whatever_the_trainer_is_told_the_weights_are_the_same(config, stopping, changes):
    settings = ["method=mocov3_margin", "max_epochs=4", "auto_resume.enabled=true", *changes]
    settings += [
        "method_kwargs.schedules.positive_scale={kind: cosine, from: 0.5, to: 2}",
        "method_kwargs.schedules.temperature={kind: cycle, from: 0.1, to: 0.4, epochs: 2}",
    ]
    whole = weights_of(training.pretrain(config(*settings, "name=whole")).checkpoint)
    stops = [(1, interrupt), (4, crash), (6, interrupt), (7, crash)]
    assert differences(whole, resumed_weights(config, stopping, settings, *stops)) == []


def test_a_validation_that_was_left_does_not_show_in_the_weights(config, stopping, monkeypatch):
    settings = ["method=mocov3_margin", "auto_resume.enabled=true", "knn_eval.enabled=true"]
    whole = weights_of(training.pretrain(config(*settings, "name=whole")).checkpoint)
    original = METHODS["mocov3_margin"]

    class Stopping(original):
        def validation_step(self, *args, **kwargs):
            if not self.trainer.sanity_checking:
                interrupt()
            return super().validation_step(*args, **kwargs)

    monkeypatch.setitem(METHODS, "mocov3_margin", Stopping)
    with pytest.raises(training.TrainingInterrupted):
        training.pretrain(config(*settings))
    monkeypatch.setitem(METHODS, "mocov3_margin", original)
    result = training.pretrain(config(*settings))
    assert differences(whole, weights_of(result.checkpoint)) == []


def test_a_linear_probe_goes_on_as_well(config, linear_config, monkeypatch):
    checkpoint = training.pretrain(config("max_epochs=1")).checkpoint
    changes = ["max_epochs=3", "mixup=0.5", "finetune=true", "optimizer.lr=0.1"]
    changes += ["auto_resume.enabled=true"]
    whole = weights_of(
        training.linear(linear_config(checkpoint, "name=whole", *changes)).checkpoint
    )
    step = LinearClassifier.training_step

    def stopping(self, *args, **kwargs):
        if self.trainer.global_step == BATCHES + 1:
            interrupt()
        return step(self, *args, **kwargs)

    monkeypatch.setattr(LinearClassifier, "training_step", stopping)
    with pytest.raises(training.TrainingInterrupted):
        training.linear(linear_config(checkpoint, *changes))
    monkeypatch.setattr(LinearClassifier, "training_step", step)
    result = training.linear(linear_config(checkpoint, *changes))
    assert result.resumed_from is not None
    assert differences(whole, weights_of(result.checkpoint)) == []


@pytest.mark.parametrize("format_", ["dali", "tensors"])
def test_other_readers_go_on_as_well(config, stopping, format_):
    if format_ == "dali":
        pytest.importorskip("nvidia.dali")
    settings = ["method=mocov3_margin", "auto_resume.enabled=true", f"data.format={format_}"]
    settings.append("dali={device: cpu}")
    whole = weights_of(training.pretrain(config(*settings, "name=whole")).checkpoint)
    stops = [(1, interrupt), (BATCHES + 1, crash)]
    assert differences(whole, resumed_weights(config, stopping, settings, *stops)) == []


class Place:
    """Stands where a trainer would: at a batch of a training with some processes."""

    def __init__(self, taken=0, rank=0, world=1):
        total = SimpleNamespace(completed=taken)
        progress = SimpleNamespace(batch_progress=SimpleNamespace(total=total))
        self.fit_loop = SimpleNamespace(epoch_loop=progress)
        self.num_training_batches = float("inf")
        self.global_rank, self.world_size = rank, world
        self.strategy = SimpleNamespace(root_device=torch.device("cpu"))


FORMATS = pytest.mark.parametrize("format_", ["image_folder", "tensors"])


def batches_at(config, place, *changes):
    cfg = parsed_pretraining(checked_pretraining(config(*changes)))
    batches = RunData(cfg, pretraining=True).train
    batches.trainer = place
    return [(indexes.tolist(), torch.stack(views)) for indexes, views, _ in batches]


@FORMATS
def test_batches_depend_on_the_place_alone(config, format_):
    reads = f"data.format={format_}"
    first = batches_at(config, Place(), reads)
    assert sorted(i for indexes, _ in first for i in indexes)[-1] <= 35
    second = batches_at(config, Place(BATCHES), reads)
    assert [indexes for indexes, _ in first] != [indexes for indexes, _ in second]
    torch.rand(3)
    before = torch.get_rng_state()
    for changes in ([], ["data.num_workers=2"]):
        again = batches_at(config, Place(BATCHES + 1), reads, *changes)
        assert len(again) == BATCHES - 1
        for (indexes, views), (same_indexes, same_views) in zip(second[1:], again, strict=True):
            assert indexes == same_indexes
            assert torch.equal(views, same_views)
    assert torch.equal(before, torch.get_rng_state()), "loading draws from the steps' generator"
    other = batches_at(config, Place(), reads, "seed=6")
    assert other[0][0] != first[0][0]


@FORMATS
def test_processes_share_the_batches_of_one(config, format_):
    reads = f"data.format={format_}"
    one = batches_at(config, Place(), reads)
    halves = [
        batches_at(config, Place(0, rank, 2), reads, "optimizer.batch_size=4") for rank in (0, 1)
    ]
    for (indexes, views), (left, left_views), (right, right_views) in zip(
        one, *halves, strict=True
    ):
        assert indexes[0::2] == left
        assert indexes[1::2] == right
        # Products of matrices may round in another order in batches of another size.
        torch.testing.assert_close(views[:, 0::2], left_views, rtol=0, atol=1e-5)
        torch.testing.assert_close(views[:, 1::2], right_views, rtol=0, atol=1e-5)


KILLS = 3
KILLED = [
    *("method=mocov3_margin", "backbone.name=narrow_resnet18", "data.num_workers=2"),
    *("max_epochs=24", "auto_resume.enabled=true", "++run_id=killed"),
    *("++knn_eval={enabled: true, k: 3, distance_func: euclidean}", "++momentum.classifier=true"),
    "++method_kwargs.schedules={positive_scale: {kind: linear, from: 0.5, to: 2}, "
    "temperature: {kind: alignment, factor: 0.5}}",
]


def newest_epoch(folder):
    """Return the epoch of a run's newest checkpoint, -1 where there is none."""
    names = [checkpoint.stem for checkpoint in folder.glob("*.ckpt")]
    return max((int(name.split("-ep")[1].split("-")[0]) for name in names), default=-1)


def wait_for_more_steps(process, folder, than):
    """Wait until a run's newest checkpoint is of a later epoch."""
    deadline = time.monotonic() + 120
    while newest_epoch(folder) <= than:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_killed_at_random_points_it_ends_with_the_same_weights(start, finish, written, tmp_path):
    command = [ROOT / "main_pretrain.py", *written, *KILLED]
    unharmed = start(*command, "name=whole", "run_id=whole")
    chance = random.Random(20)
    runs = tmp_path / "runs" / "mocov3_margin"
    for _ in range(KILLS):
        # The process before may have gone on for some epochs before it was killed.
        epoch = newest_epoch(runs / "killed")
        process = start(*command)
        wait_for_more_steps(process, runs / "killed", epoch)
        # Somewhere in the next step, validation, or while the next checkpoint is written.
        time.sleep(chance.uniform(0, 0.6))
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "it has ended before it could be killed"
        process.communicate()
    # The last stop is a polite one, as Slurm's: to the whole group, workers included.
    epoch = newest_epoch(runs / "killed")
    process = start(*command)
    wait_for_more_steps(process, runs / "killed", epoch)
    os.killpg(process.pid, signal.SIGTERM)
    stopped = finish(process)
    assert stopped.code == 128 + signal.SIGTERM, stopped.err
    assert "Traceback" not in stopped.err
    [kept] = (runs / "killed").glob("*-interrupted.ckpt")
    farewell = f"Interrupted: the last checkpoint is {kept.relative_to(tmp_path)};"
    assert stopped.err.strip().splitlines()[-1].startswith(farewell)
    final = finish(start(*command))
    assert final.code == 0, final.err
    assert "Continuing from " in final.out
    assert finish(unharmed).code == 0
    [whole], [killed] = (list((runs / name).glob("*.ckpt*")) for name in ("whole", "killed"))
    assert differences(weights_of(whole), weights_of(killed)) == []


@pytest.mark.parametrize("saves", [True, False], ids=["with checkpoints", "without"])
def test_a_second_process_of_a_run_is_refused(start, finish, written, tmp_path, saves):
    """As a job that is started again while the first is still running."""
    command = [ROOT / "main_pretrain.py", *written, "backbone.name=narrow_resnet10"]
    command += ["max_epochs=1000", "auto_resume.enabled=true", "++run_id=one"]
    command += [f"checkpoint.enabled={saves}"]
    first = start(*command)
    folder = tmp_path / "runs" / "mocov3_margin" / "one"
    if saves:
        wait_for_more_steps(first, folder, 0)
    else:
        deadline = time.monotonic() + 120
        while not (folder / "logs").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    second = finish(start(*command))
    assert first.poll() is None
    assert second.code == 1
    last = second.err.strip().splitlines()[-1]
    assert last.startswith("Error: ")
    assert f"{folder.name} is in use" in last
    assert f"process {first.pid} " in last
    assert not (folder / "logs" / "version_1").exists()
    os.killpg(first.pid, signal.SIGTERM)
    assert finish(first).code == 128 + signal.SIGTERM
    assert not (folder / ".lock").exists()


PAIR = ["accelerator=cpu", "devices=2", "strategy=ddp", "max_epochs=6", "auto_resume.enabled=true"]
CLUSTERS = ["++method_kwargs.num_prototypes=[3,3]", "++method_kwargs.kmeans_iters=2"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("method", "needed"),
    [("mocov3_margin", []), ("deepclusterv2_margin", CLUSTERS)],
    ids=["mocov3_margin", "deepclusterv2_margin"],
)
def test_two_processes_stop_together_and_go_on(start, finish, written, tmp_path, method, needed):
    command = [ROOT / "main_pretrain.py", *written, *PAIR, *needed, f"method={method}"]
    command += ["backbone.name=narrow_resnet18", "++run_id=pair"]
    unharmed = finish(start(*command, "name=whole", "run_id=whole"))
    assert unharmed.code == 0, unharmed.err
    process = start(*command)
    runs = tmp_path / "runs" / method
    wait_for_more_steps(process, runs / "pair", -1)
    # Only one of them hears it.
    os.kill(process.pid, signal.SIGTERM)
    stopped = finish(process)
    assert stopped.code == 128 + signal.SIGTERM, stopped.err
    assert "Traceback" not in stopped.err
    [newest] = (runs / "pair").glob("*.ckpt")
    assert newest.stem.endswith("-interrupted")
    resumed = finish(start(*command))
    assert resumed.code == 0, resumed.err
    assert "Continuing from " in resumed.out
    [whole], [pair] = (list((runs / name).glob("*.ckpt*")) for name in ("whole", "pair"))
    assert differences(weights_of(whole), weights_of(pair)) == []
