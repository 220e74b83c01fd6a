"""Several processes train as one does, and end together, whatever happens to one of them."""

import csv
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from method_parents import PARENTS, needs
from omegaconf import OmegaConf
from processes import free_ports
from stopped_runs import loaded, steps_of
from trained_together import REPLACED, ChannelNorm

from solo_margins import training
from solo_margins.lens import records

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests" / "support" / "trained_together.py"

BY_PROCESS = {
    "deepclusterv2_margin": "the first centres are drawn from the first process's images",
    "wmse_curv": "whitening takes a process's images for the whole batch",
}
"""Methods that solo-learn defines by what a single process sees, and why."""

VARIANTS = {
    "scaled": ("simclr_margin", ["method_kwargs.margins={positive_scale: 5, curvature: 0.7}"]),
    "polarized": ("simclr_margin", ["method_kwargs.polarization.weight=0.5"]),
    "hard": ("simclr_margin", ["method_kwargs.negatives.kind=hard"]),
    "hard_queue": ("mocov2plus_margin", ["method_kwargs.negatives.kind=hard"]),
    "aligned": ("mocov3_margin", ["method_kwargs.schedules.temperature.kind=alignment"]),
}
QUEUE = 16
"""Entries of every queue."""

TWO = ("accelerator=cpu", "devices=2", "strategy=ddp")
KNN = "++knn_eval={enabled: true, k: 3}"

# Of the methods that the installed solo-learn has.
CASES = {method: (method, []) for method in PARENTS}
for _name, (_method, _changes) in VARIANTS.items():
    if _method in PARENTS:
        CASES[_name] = (_method, _changes)


@pytest.fixture
def settings(config):
    """Settings of a short training whose batches of 16 images are shared or not."""

    def make(method, processes, *changes):
        together = TWO if processes == 2 else ()
        return config(
            *needs(method),
            f"method={method}",
            "backbone={name: narrow_resnet10, kwargs: {width: 8}}",
            "max_epochs=2",
            "optimizer.lr=0.1",
            f"optimizer.batch_size={16 // processes}",
            *together,
            *changes,
        )

    return make


@pytest.fixture
def without_batch_norm(monkeypatch):
    for name in REPLACED:
        monkeypatch.setattr(torch.nn, name, ChannelNorm)


def train_together(folder):
    """Train the configurations of a folder in two processes."""
    ports = free_ports(len(list(folder.glob("*.yaml"))))
    processes = []
    for rank in range(2):
        environment = {"LOCAL_RANK": str(rank), "SOLO_MARGINS_RUN_ID": "together"}
        environment |= {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
        processes.append(
            subprocess.Popen(
                [sys.executable, "-W", "ignore", PROGRAM, folder, *map(str, ports)],
                env={**os.environ, **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    try:
        for process in processes:
            said, _ = process.communicate(timeout=240)
            assert process.returncode == 0, said
    finally:
        for process in processes:
            process.kill()


def test_two_processes_train_every_method_as_one_does(settings, without_batch_norm, tmp_path):
    folder = tmp_path / "configurations"
    folder.mkdir()
    runs = "checkpoint.dir=" + str(tmp_path / "together")
    for name, (method, changes) in CASES.items():
        cfg = settings(method, 2, *changes, runs, "run_id=together", f"name={name}")
        # Runs of one method would share a folder.
        cfg.checkpoint.dir += f"/{name}"
        OmegaConf.save(cfg, folder / f"{name}.yaml")
    train_together(folder)
    for name, (method, changes) in CASES.items():
        [checkpoint] = (tmp_path / "together" / name).rglob("*.ckpt")
        state = loaded(checkpoint)
        assert state["global_step"] == 4
        alone = loaded(training.pretrain(settings(method, 1, *changes)).checkpoint)["state_dict"]
        together = state["state_dict"]
        assert together.keys() == alone.keys()
        assert all(value.isfinite().all() for value in together.values()), name
        if method in BY_PROCESS:
            continue
        differences = {
            key: (in_order(key, alone[key]) - in_order(key, together[key])).abs().max().item()
            for key in alone
        }
        worst = max(differences, key=differences.get)
        assert differences[worst] < 1e-5, (name, worst, differences[worst])


def in_order(key, value):
    """Return a tensor, one of a queue sorted: what it holds counts, not in which order."""
    value = value.double()
    if "queue" not in key or "pointer" in key or "ptr" in key:
        return value
    return value.sort(dim=value.shape.index(QUEUE)).values


FAILING = """
from pathlib import Path
from solo_margins.methods.mocov3_margin import MoCoV3Margin as method
step = method.training_step
def training_step(self, batch, batch_idx):
    if self.trainer.global_step == 1 and self.trainer.global_rank == {rank}:
        open("raised", "w").close()
        raise RuntimeError("the network of process {rank} is in flames")
    return step(self, batch, batch_idx)
method.training_step = training_step
# Not by runpy, which lets the other process start the program itself.
exec(compile(Path({program!r}).read_text(), {program!r}, "exec"))
"""


@pytest.mark.parametrize("rank", [1, pytest.param(0, marks=pytest.mark.full)])
def test_an_error_in_one_process_ends_all_of_them(start, finish, written, tmp_path, rank):
    script = tmp_path / "failing.py"
    script.write_text(FAILING.format(rank=rank, program=str(ROOT / "main_pretrain.py")))
    done = finish(start(script, *written, *TWO, "max_epochs=50"))
    assert done.code not in (0, None)
    assert f"the network of process {rank} is in flames" in done.err
    seconds = time.time() - (tmp_path / "raised").stat().st_mtime
    assert seconds < 60, "the other process did not notice"
    assert_group_is_gone(done.pid)


def assert_group_is_gone(group):
    """Fail if a process that a program has started outlives it."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("a process was left behind")


def copy_images(source, target, training):
    """Copy the first training images, and 13 for validation."""
    for split, number in (("train", training), ("val", 13)):
        for file in sorted((source / split).rglob("*.png"))[:number]:
            copy = target / split / file.parent.name / file.name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())


def test_ragged_numbers_of_images_end_well(start, finish, written, tmp_path, image_folder):
    """One process has an image more than the other, in training and in validation.

    Checkpoints, online kNN, lens and logs come out once.
    """
    ragged = tmp_path / "ragged"
    copy_images(image_folder, ragged, 33)
    folders = (f"data.train_path={ragged / 'train'}", f"data.val_path={ragged / 'val'}")
    watched = (KNN, "++lens={enabled: true, every: 1}")
    done = finish(start(ROOT / "main_pretrain.py", *written, *TWO, *folders, *watched))
    assert done.code == 0, done.err
    [checkpoint] = tmp_path.glob("runs/*/*/*.ckpt")
    steps = 2 * 2
    assert steps_of(checkpoint) == steps
    assert [path.name for path in (checkpoint.parent / "logs").iterdir()] == ["version_0"]
    assert done.out.count("Checkpoint: ") == 1
    assert done.out.count(f"Lens: {steps} observations") == 1
    seen = records.read(checkpoint.parent).observations
    assert [one.step for one in seen] == list(range(steps))
    # Rows of the first process against the keys of both: 15 negatives each.
    angles = seen[0].histograms
    assert sum(angles["negative_angle"].counts) == 15 * sum(angles["positive_angle"].counts)
    [metrics] = tmp_path.glob("runs/*/*/logs/*/metrics.csv")
    with open(metrics) as file:
        rows = list(csv.DictReader(file))
    accuracies = [float(row["val_knn_acc1"]) for row in rows if row.get("val_knn_acc1")]
    assert len(accuracies) == 2, "one validation an epoch, told once"
    assert all(0 <= accuracy <= 100 for accuracy in accuracies)


@pytest.mark.full
@pytest.mark.parametrize("images", [33, 35])
def test_ragged_shares_of_dali_end_well(start, finish, written, tmp_path, image_folder, images):
    pytest.importorskip("nvidia.dali")
    copy_images(image_folder, tmp_path / "ragged", images)
    folders = (f"data.train_path={tmp_path}/ragged/train", f"data.val_path={tmp_path}/ragged/val")
    dali = ("++data.format=dali", "++dali={device: cpu}", "optimizer.batch_size=4")
    done = finish(start(ROOT / "main_pretrain.py", *written, *TWO, *folders, *dali))
    assert done.code == 0, done.err
    [checkpoint] = tmp_path.glob("runs/*/*/*.ckpt")
    assert steps_of(checkpoint) == 2 * (images // 8)


@pytest.mark.full
@pytest.mark.parametrize("method", PARENTS)
def test_every_method_by_the_command_line(start, finish, written, tmp_path, method):
    """Two processes, half precision, accumulated batches and clipped gradients at once."""
    combined = ("precision=bf16-mixed", "accumulate_grad_batches=2", "gradient_clip_val=1")
    sizes = ("optimizer.batch_size=8", "backbone.name=narrow_resnet10", "max_epochs=2")
    added = (f"++{setting}" for setting in (*needs(method), *sizes, *combined))
    done = finish(start(ROOT / "main_pretrain.py", *written, *TWO, f"method={method}", *added))
    assert done.code == 0, done.err
    [checkpoint] = tmp_path.glob(f"runs/{method}/*/*.ckpt")
    state = loaded(checkpoint)
    assert state["global_step"] == 2
    assert all(value.isfinite().all() for value in state["state_dict"].values())
    assert done.out.count("Checkpoint: ") == 1
