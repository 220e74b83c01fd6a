"""The lens in real runs of every margin method."""

import csv
import json
import math
from contextlib import nullcontext

import lightning.pytorch as pl
import pytest
import torch
from method_parents import PARENTS, needs
from solo.args.pretrain import parse_cfg as parse_pretrain_cfg
from solo.methods import METHODS

from solo_margins import training
from solo_margins.cli import TrainingStopped
from solo_margins.lens import Lens, records
from solo_margins.lens.runs import load_runs

ANGLES = {"positive_angle", "negative_angle", "pull", "effective_scale"}
WITHOUT_NEGATIVES = ("byol_curv", "simsiam_curv", "nnsiam_curv", "nnbyol_curv", "wmse_curv")


@pytest.fixture
def fitted(raw_config, loaders, trainer, tmp_path):
    """Train a method for some steps and return it, with what the lens saw."""

    def run(method, *overrides, is_watched=True, **options):
        overrides = ("max_epochs=1", *needs(method), *overrides)
        cfg = parse_pretrain_cfg(raw_config(method, *overrides))
        pl.seed_everything(3)
        model = METHODS[method](cfg)
        folder = tmp_path / f"lens-{method}"
        lens = [Lens(folder, every=1)] if is_watched else []
        options = {"limit_train_batches": 3, "limit_val_batches": 0, **options}
        trainer(cfg, lens, **options).fit(model, loaders(cfg)[0])
        return model, records.read(folder) if lens else None

    return run


@pytest.mark.parametrize("method", PARENTS)
def test_every_method_is_seen_and_none_is_changed(fitted, method):
    watched, run = fitted(method)
    alone, _ = fitted(method, is_watched=False)
    for key, value in alone.state_dict().items():
        assert torch.equal(value, watched.state_dict()[key]), key
    assert len(run.observations) >= 3
    seen = run.observations[-1].scalars
    assert seen.keys() >= ANGLES | {"rankme", "uniformity"}
    assert seen["effective_scale"] == pytest.approx(1.0)
    for name in ("q", "push", "temperature"):
        assert (name in seen) == (method not in WITHOUT_NEGATIVES)
    assert all(math.isfinite(value) for value in seen.values())


def test_the_loss_that_is_shown_is_the_one_that_is_trained(fitted, tmp_path):
    logger = pl.loggers.CSVLogger(tmp_path, name="", version="")
    _, run = fitted("mocov3_margin", logger=logger, log_every_n_steps=1)
    logger.save()
    with open(tmp_path / "metrics.csv") as file:
        rows = [row["train_contrastive_loss_step"] for row in csv.DictReader(file)]
    # MoCo v3 adds two directions up, with its factor 2τ.
    shown = [2 * 2 * 0.2 * seen.scalars["loss"] for seen in run.observations]
    assert [float(value) for value in rows if value] == pytest.approx(shown, rel=1e-4)


def test_margins_and_temperature_of_each_step_are_kept(fitted):
    _, run = fitted(
        "mocov3_margin",
        "method_kwargs.schedules.positive_scale={kind: linear, from: 1, to: 4, epochs: 1}",
        "method_kwargs.temperature=0.35",
        "max_epochs=2",
        precision="bf16-mixed",
    )
    scales = [seen.margins["positive_scale"] for seen in run.observations]
    assert scales == pytest.approx([1.0, 2.0, 3.0, 4.0, 4.0, 4.0])
    shown = [seen.scalars["effective_scale"] for seen in run.observations]
    assert shown == pytest.approx(scales)
    assert run.observations[0].scalars["temperature"] == pytest.approx(0.35)
    assert run.header["settings"]["method"] == "mocov3_margin"
    assert run.header["versions"]["torch"]


RAMP = "method_kwargs.schedules.polarization_weight={kind: linear, from: 0, to: 4, epochs: 1}"


@pytest.mark.parametrize(("settings", "is_on"), [([], False), ([RAMP], True)])
def test_polarization_is_measured_where_there_is_a_penalty(fitted, tmp_path, settings, is_on):
    model, run = fitted("simclr_margin", *settings, limit_train_batches=1)
    assert ("pairs_in_band" in run.observations[0].scalars) == is_on
    band = model.polarization.lower, model.polarization.upper
    [reported], _ = load_runs([tmp_path / "lens-simclr_margin"])
    assert reported.band() == (band if is_on else None)


def test_batches_of_one_step_are_looked_at_once(fitted):
    _, run = fitted("simclr_margin", accumulate_grad_batches=2, limit_train_batches=4)
    assert [seen.step for seen in run.observations] == [0, 1]


@pytest.mark.parametrize(("settings", "expected"), [(["lens.enabled=true"], 1), ([], 0)])
def test_a_setting_brings_it_to_any_trainer(config, loaders, trainer, settings, expected):
    cfg = config("simclr_margin", *settings)
    fit = trainer(cfg, max_epochs=1, limit_train_batches=1, limit_val_batches=0)
    fit.fit(METHODS["simclr_margin"](cfg), *loaders(cfg))
    assert sum(isinstance(callback, Lens) for callback in fit.callbacks) == expected


@pytest.fixture
def settings(raw_config):
    """A configuration of our program with the lens on."""

    def make(*overrides):
        cfg = raw_config(
            "mocov3_margin",
            "scheduler.warmup_epochs=0",
            "enable_progress_bar=false",
            "enable_model_summary=false",
            "lens.enabled=true",
            *overrides,
        )
        del cfg["devices"], cfg["accelerator"], cfg["performance"]
        return cfg

    return make


def test_a_run_is_observed_and_logged(settings, capsys):
    done = training.pretrain(settings())
    run = records.read(done.folder)
    # 36 images in batches of 8, of which the last is incomplete: an epoch has 4 steps.
    assert [seen.step for seen in run.observations] == [0, 4]
    assert run.header["every"] == 4
    assert "Lens: 2 observations" in capsys.readouterr().out
    logged = (done.folder / "logs" / "version_0" / "metrics.csv").read_text()
    assert "lens/rankme" in logged.splitlines()[0]


def test_tensorboard_gets_numbers_and_histograms(settings):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    done = training.pretrain(settings("loggers.tensorboard=true"))
    # All histograms: by default it keeps any one of them.
    logged = events.EventAccumulator(
        str(done.folder / "logs" / "tensorboard"), size_guidance={events.HISTOGRAMS: 0}
    )
    logged.Reload()
    assert "lens/rankme" in logged.Tags()["scalars"]
    assert {"lens/positive_angle", "lens/distance"} <= set(logged.Tags()["histograms"])
    seen = records.read(done.folder).observations[0].histograms["q"]
    shown = logged.Histograms("lens/q")[0].histogram_value
    assert shown.num == sum(shown.bucket) == sum(seen.counts)


def test_wandb_gets_numbers_and_histograms(settings, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    offline = ["wandb.enabled=true", "wandb.offline=true", "wandb.project=p", "wandb.entity=null"]
    done = training.pretrain(settings(*offline))
    wandb.finish()
    [written] = (done.folder / "wandb").rglob("*.wandb")
    assert b"lens/q_histogram" in written.read_bytes()


def test_a_resumed_run_continues_its_file(settings):
    resumed = ["auto_resume.enabled=true", "lens.every=1", "checkpoint.keep_prev=true"]
    first = training.pretrain(settings(*resumed, "max_epochs=3"))
    before = records.read(first.folder)
    # As if the process had been killed after its second epoch, while it wrote.
    first.checkpoint.unlink()
    with open(first.folder / records.FILE, "a") as file:
        line = json.dumps({"kind": "observation", "step": 9, "epoch": 2, "scalars": {}})
        file.write(line + "\n" + line[:20])
    second = training.pretrain(settings(*resumed, "max_epochs=3"))
    assert second.folder == first.folder
    after = records.read(first.folder)
    assert after.problems == []
    assert [seen.step for seen in after.observations] == list(range(12))
    assert after.observations[:8] == before.observations[:8]


@pytest.mark.parametrize(
    ("on_collapse", "ends"),
    [
        ("warn", nullcontext()),
        ("stop", pytest.raises(TrainingStopped, match=r"lens\.on_collapse=stop")),
    ],
)
def test_a_collapse_warns_and_stops_where_that_is_wanted(settings, tmp_path, on_collapse, ends):
    # Nothing is learnt, and the views have nothing in common but noise.
    collapsing = ["optimizer.lr=0", "optimizer.classifier_lr=0", "method_kwargs.temperature=5"]
    watched = ["lens.every=1", "max_epochs=6", f"lens.on_collapse={on_collapse}"]
    with ends:
        training.pretrain(settings(*collapsing, *watched))
    [file] = tmp_path.rglob(records.FILE)
    run = records.read(file.parent)
    assert [warning.name for warning in run.warnings].count("collapse_loss") == 1
    assert (run.observations[-1].step == 23) == (on_collapse == "warn")
