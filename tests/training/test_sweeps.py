"""Sweeps by Hydra's multirun: real processes on the embedded digits."""

import importlib.util
import os
import signal
import time
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from hydra.errors import MissingConfigException

from solo_margins import results, training

ROOT = Path(__file__).resolve().parents[2]
QUICK = [
    "optimizer.batch_size=16",
    "data.num_workers=0",
    "limit_train_batches=2",
    "limit_val_batches=1",
    "scheduler.warmup_epochs=0",
    "accelerator=cpu",
    "+enable_progress_bar=false",
    "+enable_model_summary=false",
]
SWEEP = [
    ROOT / "main_pretrain.py",
    *("--config-name", "simclr_margin.yaml", "--multirun", *QUICK, "results=runs.jsonl"),
]


def seeds_in(path):
    return [line.seed for line in results.read(path)]


def test_an_interrupted_sweep_goes_on_by_the_same_command(start, finish, tmp_path):
    settings = ("skip_finished=true", "auto_resume.enabled=true", "max_epochs=4", "seed=1,2,3")
    command = [*SWEEP, *settings]
    file = tmp_path / "runs.jsonl"
    process = start(*command)
    deadline = time.monotonic() + 120
    while not (half := _checkpoint_of_seed_2(tmp_path)):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert seeds_in(file) == [1]

    resumed = finish(start(*command))
    assert resumed.code == 0, resumed.err
    assert resumed.out.count("Skipped pretrain simclr_margin digits") == 1
    assert f"Continuing from {half.relative_to(tmp_path).parent}" in resumed.out
    assert resumed.out.count("starting a new one") == 1
    lines = results.read(file)
    assert [line.seed for line in lines] == [1, 2, 3]
    assert [bool(line.details["resumed_from"]) for line in lines] == [False, True, False]
    assert len(list(tmp_path.glob("trained_models/simclr_margin/*"))) == 3

    before = file.read_bytes()
    again = finish(start(*command))
    assert again.code == 0, again.err
    assert again.out.count("Skipped pretrain") == 3
    assert file.read_bytes() == before
    # Nothing lies about but runs, their results and what Hydra notes of the sweep.
    assert {path.name for path in tmp_path.iterdir()} == {"runs.jsonl", "trained_models"}
    sweeps = tmp_path / "trained_models" / "sweeps"
    assert [path.name for path in sweeps.iterdir()] == ["multirun.yaml"]

    # The third cell was the second run of its process, and yet what it is when run alone.
    with initialize_config_module("solo_margins.configs", version_base=None):
        settings = [*QUICK, "max_epochs=4", "seed=3", f"checkpoint.dir={tmp_path / 'alone'}"]
        alone = training.pretrain(compose("simclr_margin.yaml", overrides=settings))
    assert alone.metrics == lines[2].figures


def _checkpoint_of_seed_2(folder):
    for args in folder.glob("trained_models/simclr_margin/*/args.json"):
        if '"seed": 2' in args.read_text():
            return next(args.parent.glob("*.ckpt"), None)
    return None


def test_an_error_names_its_job_and_the_others_run(start, finish, tmp_path):
    settings = ("max_epochs=1", "scheduler.name=cosine,warmup_cosine", "seed=1")
    done = finish(start(*SWEEP, *settings))
    assert done.code == 1
    assert "Traceback" not in done.err
    [line] = [line for line in done.err.splitlines() if line.startswith("Error in ")]
    assert line.startswith("Error in job 0 (")
    assert "scheduler.name=cosine" in line.partition("): ")[0]
    assert line.partition("): ")[2].startswith("scheduler.name must be one of")
    assert seeds_in(tmp_path / "runs.jsonl") == [1]


@pytest.mark.full
@pytest.mark.skipif(
    importlib.util.find_spec("hydra_plugins.hydra_joblib_launcher") is None,
    reason="hydra-joblib-launcher is not installed",
)
def test_joblib_runs_jobs_side_by_side(start, finish, tmp_path):
    done = finish(start(*SWEEP, "max_epochs=1", "launcher=joblib", "seed=1,2"))
    assert done.code == 0, done.err
    assert sorted(seeds_in(tmp_path / "runs.jsonl")) == [1, 2]
    assert {path.name for path in tmp_path.iterdir()} == {"runs.jsonl", "trained_models"}


@pytest.mark.full
def test_every_job_may_train_on_two_devices(start, finish, tmp_path):
    done = finish(start(*SWEEP, "max_epochs=1", "devices=2", "strategy=ddp", "seed=1,2"))
    assert done.code == 0, done.err
    lines = results.read(tmp_path / "runs.jsonl")
    assert [(line.seed, line.settings["devices"]) for line in lines] == [(1, 2), (2, 2)]
    assert len(list(tmp_path.glob("trained_models/simclr_margin/*"))) == 2


PACKAGES = {"joblib": "hydra_joblib_launcher", "slurm": "hydra_submitit_launcher"}
PACKAGES["ray"] = "hydra_ray_launcher"


@pytest.mark.parametrize("launcher", ["local", "joblib", "slurm", "ray"])
@pytest.mark.parametrize("config", ["mocov3_margin.yaml", "linear.yaml"])
def test_launchers_compose_with_every_program(composed, launcher, config):
    package = PACKAGES.get(launcher)
    if package is not None and not importlib.util.find_spec(f"hydra_plugins.{package}"):
        with pytest.raises(MissingConfigException, match=launcher):
            composed(config, f"launcher={launcher}")
        return
    cfg = composed(config, f"launcher={launcher}")
    assert cfg.results is None
    assert cfg.skip_finished is False
    assert "launcher" not in cfg
