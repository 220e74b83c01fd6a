"""solo-learn's own, untouched programs keep the promises of ours, with our configurations."""

import csv
import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch

from solo_margins.files import digits_folder
from solo_margins.lens import records
from solo_margins.lens.__main__ import main as lens_command
from solo_margins.versions import form, host_folder

PROGRAMS = host_folder().parent
PRETRAIN, LINEAR = PROGRAMS / "main_pretrain.py", PROGRAMS / "main_linear.py"

pytestmark = pytest.mark.skipif(
    form() != "main" or not PRETRAIN.is_file(), reason="solo-learn's release has no programs"
)

QUIET = ["accelerator=cpu", "data.num_workers=0"]
OURS = ["--config-name", "mocov3_margin.yaml", *QUIET]
SHORT = ["optimizer.batch_size=64", "limit_train_batches=4", "scheduler.warmup_epochs=0"]

OBSERVED = """
import gc, runpy, sys
sys.argv = sys.argv[1:]
gc.disable()
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    from lightning.pytorch import Trainer
    (trainer,) = (x for x in gc.get_objects() if type(x) is Trainer)
    print("Data:", type(trainer.datamodule).__name__, type(trainer.train_dataloader).__name__)
    print("Callbacks:", *(type(callback).__name__ for callback in trainer.callbacks))
"""
"""Runs a program of solo-learn's as it is, and then says what its trainer had."""


def interrupt(process, folder):
    """Press Ctrl-C when the first checkpoint is there."""
    end = time.monotonic() + 120
    while process.poll() is None and not list(folder.glob("trained_models/*/*/*.ckpt")):
        assert time.monotonic() < end
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)


def only_run(folder, kind):
    (run,) = (folder / "trained_models" / kind).iterdir()
    return run


def metrics(run, name):
    """All values of a metric in the run's logs."""
    files = sorted(run.glob("logs/version_*/metrics.csv"))
    rows = [row for file in files for row in csv.DictReader(file.open())]
    return [float(row[name]) for row in rows if row.get(name)]


def sentence_of(run, beginning):
    """The one line on stderr that has a beginning; there is no stack trace."""
    assert "Traceback" not in run.err + run.out
    assert "HYDRA_FULL_ERROR" not in run.err
    (sentence,) = (line for line in run.err.splitlines() if line.startswith(beginning))
    return sentence


def test_a_run_is_interrupted_continued_reported_and_probed(start, finish, tmp_path):
    command = [PRETRAIN, *OURS, *SHORT, "max_epochs=3", "lens.enabled=true", "lens.every=1"]
    process = start(*command)
    interrupt(process, tmp_path)
    interrupted = finish(process)
    assert interrupted.code == 130
    run = only_run(tmp_path, "mocov3_margin")
    (checkpoint,) = run.glob("*.ckpt")
    assert str(checkpoint.relative_to(tmp_path)) in sentence_of(interrupted, "Interrupted")

    resumed = finish(start(*command, "auto_resume.enabled=true"))
    assert resumed.code == 0, resumed.err
    assert only_run(tmp_path, "mocov3_margin") == run
    (checkpoint,) = run.glob("*.ckpt")
    assert f"Checkpoint: {checkpoint.relative_to(tmp_path)}\n" in resumed.out
    # No step is lost or repeated.
    assert [seen.step for seen in records.read(run).observations] == list(range(12))
    args = json.loads((run / "args.json").read_text())
    assert args["method"] == "mocov3_margin"
    accuracies = metrics(run, "val_acc1")
    assert len(accuracies) == 3
    assert f"Online classifier: {accuracies[-1]:.2f} % (top 1, " in resumed.out
    lens_command(["report", str(run), f"output={tmp_path / 'x.html'}"])
    assert f"{accuracies[-1]:.2f}" in (tmp_path / "x.html").read_text()

    probe = [f"pretrained_feature_extractor={run}", "max_epochs=1", "limit_train_batches=2"]
    probed = finish(start(LINEAR, "--config-name", "linear.yaml", *QUIET, *probe))
    assert probed.code == 0, probed.err
    of_probe = only_run(tmp_path, "linear")
    assert metrics(of_probe, "val_acc1")
    (classifier,) = of_probe.glob("*.ckpt")
    assert f"Checkpoint: {classifier.relative_to(tmp_path)}\n" in probed.out
    settings = json.loads((of_probe / "args.json").read_text())
    assert settings["data"]["augmentations"]["crop_size"] == 16
    assert settings["data"]["train_path"] == args["data"]["train_path"]
    trained, kept = (
        torch.load(x, weights_only=True)["state_dict"] for x in (checkpoint, classifier)
    )
    assert torch.equal(trained["backbone.conv1.weight"], kept["backbone.conv1.weight"])


def test_damaged_images_are_skipped_or_refused(start, finish, tmp_path):
    for part in ("train", "val"):
        for label in ("0", "1"):
            (tmp_path / "images" / part / label).mkdir(parents=True)
            for image in sorted((Path(digits_folder(part)) / label).iterdir())[:8]:
                shutil.copy(image, tmp_path / "images" / part / label)
    damaged = min((tmp_path / "images" / "train" / "0").iterdir())
    damaged.write_bytes(b"not an image")
    command = [
        *[PRETRAIN, "--config-name", "simclr_margin.yaml", *QUIET],
        *["data=folder", f"data.train_path={tmp_path}/images/train"],
        *[f"data.val_path={tmp_path}/images/val", "image.size=16", "backbone=narrow_resnet10"],
        *["optimizer.batch_size=16", "max_epochs=1", "scheduler.warmup_epochs=0"],
    ]
    skipping = start(*command, "data.on_error=skip", "run_id=skipping")
    refused = finish(start(*command))
    skipping = finish(skipping)
    assert skipping.code == 0, skipping.err
    listed = tmp_path / "trained_models" / "simclr_margin" / "skipping" / "skipped_images.txt"
    assert listed.read_text() == f"{damaged}\n"
    assert str(damaged) in skipping.err
    assert "They are listed in" in skipping.err
    assert refused.code == 1
    assert str(damaged) in sentence_of(refused, "Error: ")


def test_wrong_settings_end_with_one_sentence(start, finish):
    wrong = {
        "margins.angular must be a number in": ["method_kwargs.margins.angular=7"],
        "CIFAR-10 was not found": ["data=cifar10", "data.train_path=/nowhere"],
        "optimizer.batch_size=9999 exceeds the": ["optimizer.batch_size=9999"],
        "cannot run a multirun": ["--multirun"],
    }
    # Hydra wants its options before settings.
    processes = {
        sentence: start(PRETRAIN, *OURS[:2], *changes, *OURS[2:])
        for sentence, changes in wrong.items()
    }
    for sentence, process in processes.items():
        run = finish(process)
        assert run.code == 1, run.err
        assert sentence in sentence_of(run, "Error: ")


def test_a_users_own_configuration_stays_solo_learns(start, finish, own, tmp_path):
    plain = start("-c", OBSERVED, PRETRAIN, *own)
    lens = start("-c", OBSERVED, PRETRAIN, *own, "name=lens", "+lens.enabled=true")
    plain, lens = finish(plain), finish(lens)
    assert (plain.code, lens.code) == (0, 0), plain.err + lens.err
    for run in (plain, lens):
        assert "Data: NoneType DataLoader\n" in run.out
    assert "Callbacks: Checkpointer TQDMProgressBar ModelSummary\n" in plain.out
    files = {"own": {"args.json"}, "lens": {"args.json", "lens.jsonl"}}
    for name, others in files.items():
        (checkpoint,) = tmp_path.glob(f"trained_models/simclr/*/{name}-*-ep=0.ckpt")
        assert {file.name for file in checkpoint.parent.iterdir()} == {checkpoint.name, *others}


def test_a_method_of_ours_in_a_users_own_configuration(start, finish, own, tmp_path):
    process = start("-c", OBSERVED, PRETRAIN, *own, "method=mocov3_margin", "max_epochs=500")
    interrupt(process, tmp_path)
    run = finish(process)
    assert run.code == 130
    (checkpoint,) = only_run(tmp_path, "mocov3_margin").glob("*.ckpt")
    assert str(checkpoint.relative_to(tmp_path)) in sentence_of(run, "Interrupted")
    assert "Data: NoneType DataLoader\n" in run.out
    (callbacks,) = (line for line in run.out.splitlines() if line.startswith("Callbacks: "))
    assert {"InterruptGuard", "NonFiniteGuard", "RunCheckpointer"} <= set(callbacks.split())
    assert "Checkpointer" not in callbacks.split()


def test_images_in_memory_are_not_silently_read_by_solo_learn(start, finish, own):
    run = finish(start(PRETRAIN, *own, "method=mocov3_margin", "data.format=tensors"))
    assert run.code == 1
    assert "data.format=tensors is read by solo-margins' recipes" in run.err


@pytest.mark.full
def test_two_ranks_share_one_folder(start, finish, tmp_path):
    together = ["devices=2", "strategy=ddp", "max_epochs=2"]
    run = finish(start(PRETRAIN, *OURS, *SHORT, *together))
    assert run.code == 0, run.err
    folder = only_run(tmp_path, "mocov3_margin")
    (checkpoint,) = folder.glob("*.ckpt")
    assert run.out.count("Checkpoint: ") == 1
    assert torch.load(checkpoint, weights_only=True)["epoch"] == 1
    assert len(metrics(folder, "val_acc1")) == 2


def test_the_checkpoint_of_another_run_is_refused(start, finish, tmp_path):
    command = [PRETRAIN, *OURS, *SHORT, "max_epochs=1"]
    assert finish(start(*command)).code == 0
    [checkpoint] = tmp_path.glob("trained_models/*/*/*.ckpt")
    for setting in ("method_kwargs.margins.positive_scale=7", "optimizer.weight_decay=0.5"):
        refused = finish(start(*command, f"resume_from_checkpoint={checkpoint}", setting))
        key, _, value = setting.partition("=")
        assert refused.code == 1
        sentence = sentence_of(refused, "Error: ")
        assert f"{key}=" in sentence
        assert f"now {value}" in sentence
