"""The commands that a user types, in processes of their own and from a foreign folder."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from solo_margins.backbones import build_backbone
from solo_margins.lens import records

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_checkpoint_and_the_same_command_goes_on(
    start, finish, written, tmp_path, number
):
    command = [ROOT / "main_pretrain.py", *written, "max_epochs=4", "data.num_workers=1"]
    process = start(*command)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("runs/*/*/*.ckpt")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    # To the whole group, data-loading workers included, as a terminal or Slurm does it.
    os.killpg(process.pid, number)
    stopped = finish(process)
    assert stopped.code == 128 + number, stopped.err
    assert "Traceback" not in stopped.err
    [checkpoint] = tmp_path.glob("runs/mocov3_margin/*/*.ckpt")
    assert (
        stopped.err.strip()
        .splitlines()[-1]
        .startswith(f"Interrupted: the last checkpoint is {checkpoint.relative_to(tmp_path)};")
    )
    steps = torch.load(checkpoint, weights_only=True)["global_step"]
    assert 4 <= steps < 16

    resumed = finish(start(*command, "auto_resume.enabled=true"))
    assert resumed.code == 0, resumed.err
    [final] = tmp_path.glob("runs/mocov3_margin/*/*.ckpt")
    assert final.parent == checkpoint.parent
    assert torch.load(final, weights_only=True)["global_step"] == 16
    assert f"Continuing from {checkpoint.relative_to(tmp_path)}" in resumed.out
    assert f"Checkpoint: {final.relative_to(tmp_path)}" in resumed.out


@pytest.mark.full
def test_a_sweep_gives_every_job_its_folder(start, finish, written, tmp_path):
    settings = ("--multirun", "max_epochs=1", "+limit_train_batches=1", "seed=1,2")
    done = finish(start(ROOT / "main_pretrain.py", *written, *settings))
    assert done.code == 0, done.err
    seeds = [json.loads(p.read_text())["seed"] for p in tmp_path.glob("runs/*/*/args.json")]
    assert sorted(seeds) == [1, 2]


def test_a_mistake_is_one_sentence_and_code_1(start, finish, written):
    done = finish(start(ROOT / "main_pretrain.py", *written, "data.train_path=/nowhere"))
    assert done.code == 1
    [line] = done.err.strip().splitlines()
    assert line.startswith("Error: data.train_path=/nowhere is not an existing folder")


@pytest.mark.parametrize("program", [[ROOT / "main_pretrain.py"], ["-m", "solo_margins.pretrain"]])
def test_our_configurations_are_found_from_anywhere(start, finish, program):
    done = finish(start(*program, "--config-name", "mocov3_margin.yaml", "--cfg", "job"))
    assert done.code == 0, done.err
    assert "method: mocov3_margin" in done.out


@pytest.mark.full
def test_two_processes_train_one_run(start, finish, written, tmp_path):
    settings = ("accelerator=cpu", "devices=2", "strategy=ddp", "max_epochs=1", "++run_id=pair")
    lens = "++lens={enabled: true, every: 1, on_collapse: stop}"
    done = finish(start(ROOT / "main_pretrain.py", *written, *settings, lens))
    assert done.code == 0, done.err
    [folder] = tmp_path.glob("runs/mocov3_margin/*")
    assert folder.name == "pair"
    [checkpoint] = folder.glob("*.ckpt")
    assert torch.load(checkpoint, weights_only=True)["global_step"] == 2
    assert [path.name for path in (folder / "logs").iterdir()] == ["version_0"]
    assert done.out.count("Checkpoint: ") == 1
    assert done.out.count("Lens: 2 observations") == 1
    seen = records.read(folder).observations
    assert [one.step for one in seen] == [0, 1]
    # Rows of the first process against the keys of both: 15 negatives each.
    angles = seen[0].histograms
    assert sum(angles["negative_angle"].counts) == 15 * sum(angles["positive_angle"].counts)


def test_linear_probing_of_a_checkpoint(start, finish, written, linear_config, tmp_path):
    cfg = OmegaConf.load(tmp_path / "conf" / "own.yaml")
    for key, value in linear_config("x", "checkpoint.dir=runs", "max_epochs=1").items():
        cfg[key] = value
    del cfg["augmentations"]
    OmegaConf.save(cfg, tmp_path / "conf" / "own.yaml")
    network = build_backbone(
        OmegaConf.create({"backbone": {"name": "resnet18"}, "data": {"dataset": "custom"}})
    )
    state = {f"encoder.{key}": value for key, value in network.state_dict().items()}
    torch.save({"state_dict": state}, tmp_path / "old.ckpt")
    args = {"method": "byol", "backbone": {"name": "resnet18"}, "data": {"dataset": "custom"}}
    args["augmentations"] = [{"crop_size": 16}]
    (tmp_path / "args.json").write_text(json.dumps(args))
    command = (ROOT / "main_linear.py", *written, "pretrained_feature_extractor=old.ckpt")
    done = finish(start(*command))
    assert done.code == 0, done.err
    assert "Linear classifier: " in done.out
    assert "Renamed" in done.err
    assert "encoder.*" in done.err
    assert list(tmp_path.glob("runs/linear/*/*.ckpt"))
