"""The lens in a loop of one's own, and in any Lightning trainer: what it leaves can be read."""

import logging
import math

import lightning.pytorch as pl
import pytest
import torch
from processes import run_processes
from recorded_loops import collapsing_rank
from report_pages import lens_report
from torch import nn

from solo_margins.lens import Lens, records
from solo_margins.lens.runs import load_runs
from solo_margins.losses import MarginNTXentLoss, Margins, mocov3_margin_loss_func

CRITERION = MarginNTXentLoss(0.3, Margins(positive_scale=2.0))


class Model(nn.Module):
    """Its parts have the names that lightly uses."""

    def __init__(self):
        super().__init__()
        # As pooled images: a height and a width of 1 are left.
        self.backbone = nn.Sequential(nn.Linear(8, 6), nn.Unflatten(1, (6, 1, 1)))
        self.projection_head = nn.Linear(6, 4)

    def forward(self, x):
        return self.projection_head(self.backbone(x).flatten(1))


def loss_of(model):
    device = next(model.parameters()).device
    images, noise = torch.randn(2, 16, 8, device=device)
    return CRITERION(model(images), model(images + 0.1 * noise))


def trained(lens, steps, model=None, **told):
    """Record the steps of a loop."""
    model = model or Model()
    for step in range(steps):
        with lens.recording(model, **{name: value(step) for name, value in told.items()}):
            loss_of(model).backward()


def test_a_loop_is_observed_and_says_what_it_cost(tmp_path, capsys, device):
    lens = Lens(folder=tmp_path / "mine", every=3)
    trained(lens, 7, Model().to(device))
    assert lens.last.step == 6
    lens.finish()
    assert "Lens: 3 observations" in capsys.readouterr().out
    run = records.read(tmp_path / "mine")
    assert run.problems == []
    assert [seen.step for seen in run.observations] == [0, 3, 6]
    seen = run.observations[-1]
    assert math.isnan(seen.epoch)
    assert seen.scalars["temperature"] == pytest.approx(0.3)
    assert seen.scalars["effective_scale"] == pytest.approx(2.0)
    assert seen.margins["positive_scale"] == 2.0
    assert {"rankme", "uniformity", "q"} <= seen.scalars.keys()
    assert seen.scalars["feature_width"] == 6
    assert (run.header["method"], run.header["settings"]) == ("Model", {})
    assert run.cost["observations"] == 3


@pytest.mark.parametrize("is_model_known", [True, False])
@pytest.mark.parametrize("is_loss_ours", [True, False])
def test_what_is_there_is_measured_and_another_loss_reported_once(
    tmp_path, caplog, is_model_known, is_loss_ours
):
    lens, model = Lens(tmp_path, every=1), Model()
    criterion = CRITERION if is_loss_ours else nn.MSELoss()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with lens.recording(model if is_model_known else None):
                criterion(model(torch.randn(16, 8)), model(torch.randn(16, 8))).backward()
    of_model, of_loss = {"rankme", "uniformity"}, {"q", "pull", "positive_angle"}
    measured = lens.last.scalars.keys()
    assert (of_model <= measured, of_loss <= measured) == (is_model_known, is_loss_ours)
    assert len(caplog.records) == (0 if is_loss_ours else 1)


def test_margins_by_row_and_a_scaling_are_recorded(tmp_path):
    lens, model = Lens(tmp_path, every=1), Model()
    by_row = torch.linspace(0.0, 0.5, 16)
    margins = Margins(angular=by_row, positive_scale=1.0 + by_row, scaling=torch.maximum)
    with lens.recording(model):
        query, key = model(torch.randn(16, 8)), model(torch.randn(16, 8))
        mocov3_margin_loss_func(query, key, 0.3, margins).backward()
    lens.finish()
    [seen] = records.read(tmp_path).observations
    assert (seen.margins["angular"], seen.margins["positive_scale"]) == (0.25, 1.25)
    assert "maximum" in seen.margins["scaling"]
    assert math.isfinite(seen.scalars["effective_scale"])
    [run], [note] = load_runs([tmp_path])
    assert run.margins == Margins(angular=0.25, positive_scale=1.25)
    assert "maximum" in note


def test_steps_and_epochs_may_be_told_as_by_a_loop_that_resumes(tmp_path):
    trained(Lens(tmp_path, every=2), 6, step=lambda step: step, epoch=lambda step: step / 4)
    trained(Lens(tmp_path, every=2), 3, step=lambda step: 4 + step)
    seen = records.read(tmp_path).observations
    assert [(one.step, one.epoch) for one in seen[:2]] == [(0, 0.0), (2, 0.5)]
    assert [(one.step, math.isnan(one.epoch)) for one in seen[2:]] == [(4, True), (6, True)]


def test_steps_that_begin_anew_in_every_epoch_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"^step must"):
        trained(Lens(tmp_path), 4, step=lambda step: step % 3)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [({"every": 0}, "every"), ({"on_collapse": "pray"}, "on_collapse"), ({}, "folder")],
)
def test_what_cannot_be_is_refused(arguments, named):
    with pytest.raises(ValueError, match=f"^{named} must be"):
        trained(Lens(**arguments), 1)


def test_a_step_that_fails_is_not_observed(tmp_path):
    lens, model = Lens(tmp_path, every=1), Model()
    with pytest.raises(ZeroDivisionError), lens.recording(model):
        raise ZeroDivisionError
    assert not model.backbone._forward_hooks
    trained(lens, 1, model)
    assert [seen.step for seen in records.read(tmp_path).observations] == [1]


def test_all_ranks_of_a_loop_stop_together(tmp_path):
    first, second = run_processes(2, collapsing_rank, str(tmp_path))
    assert first == second
    step, reason, is_measured = first
    assert 10 <= step < 20
    assert reason
    assert is_measured, "also of a model in DistributedDataParallel"
    assert [seen.step for seen in records.read(tmp_path).observations] == list(range(step + 1))


def test_a_report_of_loops_misses_nothing(tmp_path):
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder, name in zip(folders, (None, "margins"), strict=True):
        lens = Lens(folder, every=1, name=name)
        trained(lens, 3)
        lens.finish()
    runs, notes = load_runs(folders)
    assert notes == []
    assert [run.label for run in runs] == ["one", "margins"]
    assert [(run.settings, run.temperature) for run in runs] == [({}, pytest.approx(0.3))] * 2
    assert runs[0].margins == CRITERION.margins
    output = tmp_path / "report.html"
    page = lens_report.write_report([*map(str, folders), f"output={output}"])
    assert 'class="box notes"' not in page.read_text()


class Lightning(pl.LightningModule):
    """A module of somebody's own, with our loss."""

    def __init__(self):
        super().__init__()
        self.encoder, self.projector = nn.Linear(8, 6), nn.Linear(6, 4)

    def training_step(self, batch, index):
        return CRITERION(*(self.projector(self.encoder(view)) for view in batch))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("where", "folder"),
    [
        ("told", "mine"),
        ("logs", "lightning_logs/version_0"),
        ("checkpoints", "kept"),
        ("root", "."),
    ],
)
def test_any_lightning_module_in_any_trainer(tmp_path, accelerator, where, folder):
    folder = tmp_path / folder
    callbacks = [Lens(folder if where == "told" else None, every=2)]
    if where == "checkpoints":
        callbacks.append(pl.callbacks.ModelCheckpoint(folder))
    trainer = pl.Trainer(
        accelerator=accelerator,
        devices=1,
        max_epochs=2,
        callbacks=callbacks,
        logger=pl.loggers.CSVLogger(tmp_path) if where == "logs" else False,
        default_root_dir=tmp_path,
        enable_checkpointing=where != "root",
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    views = torch.utils.data.TensorDataset(*torch.randn(2, 16, 8))
    trainer.fit(Lightning(), torch.utils.data.DataLoader(views, batch_size=4))
    run = records.read(folder)
    seen = [(one.step, one.epoch) for one in run.observations]
    assert seen == [(0, 0.0), (2, 0.5), (4, 1.0), (6, 1.5)]
    assert {"rankme", "q", "uniformity"} <= run.observations[0].scalars.keys()
    assert load_runs([folder])[1] == []
    if where == "logs":
        assert "lens/q" in (folder / "metrics.csv").read_text().splitlines()[0]
