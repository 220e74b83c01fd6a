"""Sweeps by Hydra's multirun: real processes on the embedded digits."""

import importlib.util
import os
import signal
from pathlib import Path

import pytest
from hydra.errors import MissingConfigException
from stopped_runs import wait_until

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


def test_an_interrupted_sweep_goes_on_by_the_same_command(start, finish, composed, tmp_path):
    settings = ("skip_finished=true", "auto_resume.enabled=true", "max_epochs=4", "seed=1,2,3")
    command = [*SWEEP, *settings, "optimizer.lr=-1,0.3"]
    file = tmp_path / "runs.jsonl"
    process = start(*command)
    half = wait_until(lambda: _checkpoint_of_seed_2(tmp_path), process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert seeds_in(file) == [1]

    resumed = finish(start(*command))
    # The jobs with an impossible rate say so, and the others run.
    assert resumed.code == 1
    assert "Traceback" not in resumed.err
    wrong = [line for line in resumed.err.splitlines() if line.startswith("Error in job ")]
    assert len(wrong) == 3
    assert all("optimizer.lr=-1" in line for line in wrong)
    assert resumed.out.count("Skipped pretrain simclr_margin digits") == 1
    assert f"Continuing from {half.relative_to(tmp_path).parent}" in resumed.out
    lines = results.read(file)
    assert [line.seed for line in lines] == [1, 2, 3]
    assert [bool(line.details["resumed_from"]) for line in lines] == [False, True, False]
    assert len(list(tmp_path.glob("trained_models/simclr_margin/*"))) == 3
    # Nothing lies about but runs, their results and what Hydra notes of the sweep.
    assert {path.name for path in tmp_path.iterdir()} == {"runs.jsonl", "trained_models"}
    sweeps = tmp_path / "trained_models" / "sweeps"
    assert [path.name for path in sweeps.iterdir()] == ["multirun.yaml"]

    # The third cell was a later run of its process, and yet what it is when run alone.
    settings = [*QUICK, "max_epochs=4", "seed=3", "optimizer.lr=0.3"]
    where = f"checkpoint.dir={tmp_path / 'alone'}"
    alone = training.pretrain(composed("simclr_margin.yaml", *settings, where))
    assert alone.metrics == lines[2].figures


def _checkpoint_of_seed_2(folder):
    for args in folder.glob("trained_models/simclr_margin/*/args.json"):
        if '"seed": 2' in args.read_text():
            return next(args.parent.glob("*.ckpt"), None)
    return None


@pytest.mark.full
@pytest.mark.parametrize(
    ("settings", "devices"),
    [(["launcher=joblib"], 1), (["devices=2", "strategy=ddp"], 2)],
    ids=["side by side", "on two devices"],
)
def test_jobs_run_elsewhere(start, finish, tmp_path, settings, devices):
    joblib = importlib.util.find_spec("hydra_plugins.hydra_joblib_launcher")
    if "launcher=joblib" in settings and joblib is None:
        pytest.skip("hydra-joblib-launcher is not installed")
    done = finish(start(*SWEEP, "max_epochs=1", "seed=1,2", *settings))
    assert done.code == 0, done.err
    lines = results.read(tmp_path / "runs.jsonl")
    assert sorted(line.seed for line in lines) == [1, 2]
    assert [line.settings["devices"] for line in lines] == [devices, devices]
    assert len(list(tmp_path.glob("trained_models/simclr_margin/*"))) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"runs.jsonl", "trained_models"}


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
