"""Disks and files that fail: one sentence, and the last good checkpoint is there."""

import contextlib
import os
import resource
import subprocess
import time
from pathlib import Path

import pytest
import torch
from solo.methods import METHODS

from solo_margins import cli, training
from solo_margins.methods.mocov3_margin import MoCoV3Margin

ROOT = Path(__file__).resolve().parents[2]
BATCHES = 4


class Crash(Exception):
    """Stands for anything that ends a process without a word."""


@pytest.fixture
def before_step(monkeypatch):
    """Call a function in a training of MoCo v3, before a step of a given number."""

    def arrange(step, function):
        class Disturbed(MoCoV3Margin):
            def on_train_batch_start(self, batch, batch_idx):
                if self.trainer.global_step == step:
                    function()
                return super().on_train_batch_start(batch, batch_idx)

        monkeypatch.setitem(METHODS, "mocov3_margin", Disturbed)

    return arrange


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own in a folder, with room for some small checkpoints."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    try:
        subprocess.run(mounted, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only root may mount a file system")
    yield folder
    while folder.is_mount():
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def crash():
    raise Crash


def fill(disk):
    """Write until there is no room."""
    with open(disk / "filler", "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def steps_of(checkpoint):
    return torch.load(checkpoint, weights_only=True)["global_step"]


def weights_of(checkpoint):
    return torch.load(checkpoint, weights_only=True)["state_dict"]


def assert_stopped(config, capsys, *sentence):
    """Run a configuration as a program and check its exit code and its only sentence."""
    with pytest.raises(SystemExit) as caught:
        cli.run_cli(training.pretrain, config)
    assert caught.value.code == 1
    [said] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Error: ")]
    assert all(part in said for part in sentence), said
    return said


@pytest.fixture(autouse=True)
def without_traces(monkeypatch):
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)


@pytest.fixture
def unfinished(config, before_step):
    """A run that ended without a word in its third epoch, with two checkpoints."""
    settings = ["max_epochs=4", "auto_resume.enabled=true", "run_id=broken"]
    before_step(2 * BATCHES + 1, crash)
    with pytest.raises(Crash):
        training.pretrain(config(*settings))
    before_step(-1, crash)
    return lambda *changes: config(*settings, *changes)


def newest_and_previous(tmp_path):
    folder = tmp_path / "runs" / "mocov3_margin" / "broken"
    [newest] = folder.glob("*.ckpt")
    [previous] = folder.glob("*.ckpt.previous")
    return newest, previous


def cut_off(path):
    os.truncate(path, path.stat().st_size // 2)


def blank(path):
    """Overwrite the middle with zeros, as a disk does that lost power."""
    with open(path, "r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(bytes(1000))


@pytest.mark.parametrize("damage", [cut_off, blank])
def test_a_broken_newest_checkpoint_is_skipped(unfinished, tmp_path, caplog, damage):
    whole = training.pretrain(unfinished("run_id=whole", "name=whole")).checkpoint
    newest, previous = newest_and_previous(tmp_path)
    assert (steps_of(newest), steps_of(previous)) == (2 * BATCHES, BATCHES)
    damage(newest)
    result = training.pretrain(unfinished())
    [warning] = [record.message for record in caplog.records if "Skipped" in record.message]
    assert str(newest) in warning
    assert result.resumed_from == previous
    assert list(result.folder.glob("*.ckpt*")) == [result.checkpoint], "nothing is left over"
    expected = weights_of(whole)
    assert all(torch.equal(expected[k], v) for k, v in weights_of(result.checkpoint).items())


def test_where_nothing_can_be_read_it_starts_anew(unfinished, tmp_path, caplog, capsys):
    for path in newest_and_previous(tmp_path):
        cut_off(path)
    result = training.pretrain(unfinished())
    assert sum("Skipped" in record.message for record in caplog.records) == 2
    assert "starting a new one" in capsys.readouterr().out
    assert result.resumed_from is None
    assert result.folder.name == "broken"
    assert steps_of(result.checkpoint) == 4 * BATCHES
    assert list(result.folder.glob("*.ckpt*")) == [result.checkpoint]


def test_a_broken_file_that_was_named_is_refused(unfinished, tmp_path, capsys):
    newest, _ = newest_and_previous(tmp_path)
    cut_off(newest)
    named = unfinished(f"resume_from_checkpoint={newest}", "run_id=null")
    assert_stopped(named, capsys, str(newest), "is damaged or no")
    newest.write_text("no checkpoint at all")
    assert_stopped(named, capsys, str(newest), "is damaged or no")


def test_a_full_disk_keeps_the_last_good_checkpoint(config, before_step, small_disk, capsys):
    settings = [f"checkpoint.dir={small_disk / 'runs'}", "auto_resume.enabled=true", "max_epochs=3"]
    # Only the checkpoint is to be written there.
    settings.append("loggers.csv=false")
    before_step(BATCHES + 1, lambda: fill(small_disk))
    said = assert_stopped(config(*settings), capsys, "No space left on device", "last good one is")
    [kept] = small_disk.glob("runs/*/*/*.ckpt*")
    assert str(kept) in said
    assert steps_of(kept) == BATCHES
    assert not list(small_disk.rglob("*.partial"))

    (small_disk / "filler").unlink()
    before_step(-1, crash)
    result = training.pretrain(config(*settings))
    assert result.resumed_from == kept
    assert steps_of(result.checkpoint) == 3 * BATCHES


def test_a_full_disk_that_a_log_finds_first_is_told_as_well(
    config, before_step, small_disk, capsys
):
    before_step(BATCHES + 1, lambda: fill(small_disk))
    settings = (f"checkpoint.dir={small_disk / 'runs'}", "log_every_n_steps=1")
    assert_stopped(config(*settings), capsys, "No space left on device", "last good")
    [kept] = small_disk.glob("runs/*/*/*.ckpt")
    assert steps_of(kept) == BATCHES


def test_a_disk_that_becomes_read_only(config, before_step, small_disk, capsys):
    def protect():
        # Seen through another mount: one with a file that is open for writing cannot be changed.
        subprocess.run(["mount", "--bind", small_disk, small_disk], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", small_disk], check=True)

    before_step(BATCHES + 1, protect)
    settings = (f"checkpoint.dir={small_disk / 'runs'}", "loggers.csv=false", "max_epochs=3")
    assert_stopped(config(*settings), capsys, "Read-only file system", "last good one is")
    [kept] = small_disk.glob("runs/*/*/*.ckpt")
    assert steps_of(kept) == BATCHES
    before_step(-1, crash)
    assert_stopped(config(*settings), capsys, "checkpoint.dir=", "Read-only file system")


def test_a_quota_on_files_is_told_like_a_full_disk(config, before_step, tmp_path, capsys):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))

    before_step(BATCHES + 1, limit)
    try:
        assert_stopped(config("max_epochs=3"), capsys, "File too large", "last good one is")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    [kept] = tmp_path.glob("runs/*/*/*.ckpt")
    assert steps_of(kept) == BATCHES
    assert not list(tmp_path.rglob("*.partial"))


def test_a_folder_that_cannot_be_written_stops_before_the_first_step(
    config, before_step, tmp_path, capsys
):
    before_step(0, crash)
    (tmp_path / "file").write_text("")
    there = f"checkpoint.dir={tmp_path / 'file' / 'runs'}"
    assert_stopped(config(there), capsys, there, "cannot be written: Not a directory")


def test_what_a_killed_process_was_writing_is_removed(unfinished, tmp_path):
    newest, _ = newest_and_previous(tmp_path)
    half = newest.with_name(newest.name.replace("ep1", "ep2")).with_suffix(".partial")
    half.write_bytes(b"half")
    # A kill between two renames leaves two newest ones.
    double = newest.with_name(newest.name.replace("ep1", "ep0"))
    double.write_bytes(newest.read_bytes())
    os.utime(double, (0, 0))
    result = training.pretrain(unfinished())
    assert result.resumed_from == newest
    assert list(result.folder.glob("*.ckpt*")) == [result.checkpoint]
    assert not list(result.folder.rglob("*.partial"))


def test_keeping_all_checkpoints_sets_none_aside(config):
    result = training.pretrain(config("checkpoint.keep_prev=true", "max_epochs=3"))
    assert len(list(result.folder.glob("*.ckpt*"))) == 3


@pytest.mark.full
def test_a_full_disk_stops_all_processes(start, finish, written, small_disk):
    command = [ROOT / "main_pretrain.py", *written, "method=mocov3_margin", "max_epochs=50"]
    command += ["backbone.name=narrow_resnet18", f"checkpoint.dir={small_disk / 'runs'}"]
    command += ["accelerator=cpu", "devices=2", "strategy=ddp", "++loggers.csv=false"]
    process = start(*command)
    deadline = time.monotonic() + 120
    while not list(small_disk.glob("runs/*/*/*.ckpt")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    fill(small_disk)
    stopped = finish(process)
    assert stopped.code == 1, stopped.err
    assert "Traceback" not in stopped.err
    [said] = [line for line in stopped.err.splitlines() if line.startswith("Error: ")]
    assert "No space left on device" in said
    [kept] = small_disk.glob("runs/*/*/*.ckpt")
    assert str(kept) in said
    assert not list(small_disk.rglob("*.partial"))
