"""Disks and files that fail: one sentence, and the last good checkpoint is there."""

import contextlib
import os
import resource
import subprocess
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from stopped_runs import BATCHES, Crash, crash, differences, steps_of, wait_until

from solo_margins import cli, training

ROOT = Path(__file__).resolve().parents[2]
RESUMES = "auto_resume.enabled=true"


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


def fill(disk):
    """Write until there is no room."""
    with open(disk / "filler", "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def protect(disk):
    """Let a file system be read-only from now on."""
    # Seen through another mount: one with a file that is open for writing cannot be changed.
    subprocess.run(["mount", "--bind", disk, disk], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", disk], check=True)


@pytest.fixture
def stopped(capsys, monkeypatch):
    """Run a configuration as a program and return the only sentence that it ends with."""
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)

    def run(config):
        with pytest.raises(SystemExit) as caught:
            cli.run_cli(training.pretrain, config)
        assert caught.value.code == 1
        [said] = [x for x in capsys.readouterr().err.splitlines() if x.startswith("Error: ")]
        return said

    return run


@pytest.fixture
def unfinished(config, before_step, tmp_path):
    """A run that ended without a word in its third epoch, and its two checkpoints."""
    settings = ["max_epochs=4", RESUMES, "run_id=broken"]
    before_step(2 * BATCHES + 1, crash)
    with pytest.raises(Crash):
        training.pretrain(config(*settings))
    before_step()
    folder = tmp_path / "runs" / "mocov3_margin" / "broken"
    [newest], [previous] = folder.glob("*.ckpt"), folder.glob("*.ckpt.previous")
    return newest, previous, lambda *changes: config(*settings, *changes)


def cut_off(path):
    os.truncate(path, path.stat().st_size // 2)


def blank(path):
    """Overwrite the middle with zeros, as a disk does that lost power."""
    with open(path, "r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(bytes(1000))


@pytest.mark.parametrize("damage", [cut_off, blank])
def test_a_broken_newest_checkpoint_is_skipped(unfinished, caplog, damage):
    newest, previous, again = unfinished
    whole = training.pretrain(again("run_id=whole", "name=whole")).checkpoint
    assert (steps_of(newest), steps_of(previous)) == (2 * BATCHES, BATCHES)
    damage(newest)
    result = training.pretrain(again())
    assert str(newest) in caplog.text
    assert result.resumed_from == previous
    assert list(result.folder.glob("*.ckpt*")) == [result.checkpoint], "nothing is left over"
    assert differences(whole, result.checkpoint) == []


def test_where_nothing_can_be_read_it_starts_anew(unfinished):
    *checkpoints, again = unfinished
    for path in checkpoints:
        cut_off(path)
    result = training.pretrain(again())
    assert result.resumed_from is None
    assert result.folder.name == "broken"
    assert steps_of(result.checkpoint) == 4 * BATCHES
    assert list(result.folder.glob("*.ckpt*")) == [result.checkpoint]


def test_a_broken_file_that_was_named_is_refused(unfinished, stopped):
    newest, _, again = unfinished
    named = again(f"resume_from_checkpoint={newest}", "run_id=null")
    blank(newest)
    assert str(newest) in stopped(named)
    cut_off(newest)
    assert str(newest) in stopped(named)


def test_what_a_killed_process_was_writing_is_removed(unfinished):
    newest, _, again = unfinished
    half = newest.with_name(newest.name.replace("ep1", "ep7")).with_suffix(".partial")
    half.write_bytes(b"half")
    somebody_elses = newest.with_name("another.partial")
    somebody_elses.touch()
    # A kill between two renames leaves two newest ones.
    double = newest.with_name(newest.name.replace("ep1", "ep0"))
    double.write_bytes(newest.read_bytes())
    os.utime(double, (0, 0))
    result = training.pretrain(again())
    assert result.resumed_from == newest
    assert list(result.folder.glob("*.ckpt*")) == [result.checkpoint]
    assert list(result.folder.glob("*.partial")) == [somebody_elses]


@pytest.mark.parametrize(
    ("spoil", "logs", "reason"),
    [
        (fill, "loggers.csv=false", "No space left on device"),
        (fill, "log_every_n_steps=1", "No space left on device"),
        (protect, "loggers.csv=false", "Read-only file system"),
    ],
    ids=["a checkpoint finds it full", "a log finds it full", "read-only"],
)
def test_a_disk_that_takes_no_more_keeps_the_last_good_checkpoint(
    config, before_step, stopped, small_disk, spoil, logs, reason
):
    settings = [f"checkpoint.dir={small_disk / 'runs'}", RESUMES, "max_epochs=3", logs]
    before_step(BATCHES + 1, lambda: spoil(small_disk))
    said = stopped(config(*settings))
    [kept] = small_disk.glob("runs/*/*/*.ckpt*")
    assert reason in said
    assert str(kept) in said
    assert steps_of(kept) == BATCHES
    assert not list(small_disk.rglob("*.partial"))
    before_step()
    if spoil is protect:
        assert reason in stopped(config(*settings))
        return
    (small_disk / "filler").unlink()
    result = training.pretrain(config(*settings))
    assert result.resumed_from == kept
    assert steps_of(result.checkpoint) == 3 * BATCHES


def test_a_quota_on_files_is_told_like_a_full_disk(config, before_step, stopped, tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before_step(BATCHES + 1, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1])))
    try:
        assert "File too large" in stopped(config("max_epochs=3"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    [kept] = tmp_path.glob("runs/*/*/*.ckpt")
    assert steps_of(kept) == BATCHES
    assert not list(tmp_path.rglob("*.partial"))


def test_a_folder_that_cannot_be_written_stops_before_the_first_step(
    config, before_step, stopped, tmp_path
):
    before_step(0, crash)
    (tmp_path / "file").write_text("")
    there = f"checkpoint.dir={tmp_path / 'file' / 'runs'}"
    assert "Not a directory" in stopped(config(there, "run_id=named"))


ALMOST_FULL = """
import resource, sys
# The settings of a run are longer.
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
from omegaconf import OmegaConf
from solo_margins import cli, training
cli.run_cli(training.pretrain, OmegaConf.load(sys.argv[1]))
"""


@pytest.mark.full
def test_settings_that_cannot_be_written_stop_all_processes(config, start, finish, tmp_path):
    two = ["accelerator=cpu", "devices=2", "strategy=ddp", "optimizer.batch_size=4"]
    backbone = "backbone.name=narrow_resnet10"
    OmegaConf.save(config(*two, backbone, "loggers.csv=false"), tmp_path / "own.yaml")
    (tmp_path / "program.py").write_text(ALMOST_FULL)
    done = finish(start(tmp_path / "program.py", tmp_path / "own.yaml"))
    assert done.code == 1, done.err
    [said] = [line for line in done.err.splitlines() if line.startswith("Error: ")]
    assert "args.json cannot be written: File too large" in said


@pytest.mark.full
def test_a_full_disk_stops_all_processes(start, finish, written, small_disk):
    command = [ROOT / "main_pretrain.py", *written, "max_epochs=50", "++loggers.csv=false"]
    command += ["backbone.name=narrow_resnet18", f"checkpoint.dir={small_disk / 'runs'}"]
    process = start(*command, "accelerator=cpu", "devices=2", "strategy=ddp")
    wait_until(lambda: list(small_disk.glob("runs/*/*/*.ckpt")), process)
    fill(small_disk)
    done = finish(process)
    assert done.code == 1, done.err
    assert "Traceback" not in done.err
    [said] = [line for line in done.err.splitlines() if line.startswith("Error: ")]
    [kept] = small_disk.glob("runs/*/*/*.ckpt")
    assert "No space left on device" in said
    assert str(kept) in said
    assert not list(small_disk.rglob("*.partial"))
