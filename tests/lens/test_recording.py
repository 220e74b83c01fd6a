"""The lens in a loop of one's own, and in any Lightning trainer: what it leaves can be read."""

import logging
import math
import re

import lightning.pytorch as pl
import pytest
import torch
from documented import ROOT
from processes import run_processes
from recorded_loops import collapsing_rank
from report_pages import lens_report
from torch import nn

from solo_margins.lens import Lens, records
from solo_margins.lens.capture import capture
from solo_margins.lens.health import advise
from solo_margins.lens.runs import load_runs
from solo_margins.losses import MarginNTXentLoss, Margins

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
    images = torch.randn(16, 8)
    return CRITERION(model(images), model(images + 0.1 * torch.randn(16, 8)))


def trained(lens, steps, model=None, **told):
    """Record the steps of a loop."""
    model = model or Model()
    for step in range(steps):
        with lens.recording(model, **{name: value(step) for name, value in told.items()}):
            loss_of(model).backward()


def test_a_loop_is_observed_and_says_what_it_cost(tmp_path, capsys):
    lens = Lens(folder=tmp_path / "mine", every=3)
    trained(lens, 7)
    assert lens.last.step == 6
    lens.finish()
    out = capsys.readouterr().out
    assert "Lens: 3 observations, one every 3 steps, took" in out
    run = records.read(tmp_path / "mine")
    assert run.problems == []
    assert [seen.step for seen in run.observations] == [0, 3, 6]
    seen = run.observations[-1]
    assert math.isnan(seen.epoch)
    assert seen.scalars["temperature"] == pytest.approx(0.3)
    assert seen.scalars["effective_scale"] == pytest.approx(2.0)
    assert seen.margins["positive_scale"] == 2.0
    assert {"effective_rank", "uniformity", "q"} <= seen.scalars.keys()
    assert seen.scalars["feature_width"] == 6
    assert (run.header["method"], run.header["settings"]) == ("Model", {})
    assert run.cost["observations"] == 3


def test_without_a_model_only_what_losses_compare_is_measured(tmp_path):
    lens, model = Lens(tmp_path), Model()
    with lens.recording():
        loss_of(model)
    assert {"q", "pull", "positive_angle"} <= lens.last.scalars.keys()
    assert not {"effective_rank", "uniformity"} & lens.last.scalars.keys()


@pytest.mark.parametrize(
    ("is_model_known", "measured"),
    [(True, "only features and projections are measured"), (False, "nothing is measured")],
)
def test_another_loss_is_not_said_to_compare_no_cosines(tmp_path, caplog, is_model_known, measured):
    lens, model = Lens(tmp_path, every=1), Model()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with lens.recording(model if is_model_known else None):
                one, other = model(torch.randn(16, 8)), model(torch.randn(16, 8))
                (1 - nn.functional.cosine_similarity(one, other)).mean().backward()
    [record] = caplog.records
    assert "no loss of solo_margins was called" in record.getMessage()
    assert measured in record.getMessage()
    assert ("effective_rank" in lens.last.scalars) == is_model_known


def test_the_parts_of_a_model_can_be_told():
    encoder, head = nn.Linear(8, 6), nn.Linear(6, 4)
    model = nn.Sequential(encoder, head)
    with capture(model) as captured:
        loss_of(model)
    assert (captured.features, captured.projections) == ([], [])
    with capture(model, encoder, head) as captured:
        loss_of(model)
    assert [part.shape[1] for part in captured.features + captured.projections] == [6, 6, 4, 4]


def test_steps_may_be_told_and_a_resumed_loop_continues_its_file(tmp_path):
    trained(Lens(tmp_path, every=2), 10, step=lambda step: step, epoch=lambda step: step / 4)
    before = records.read(tmp_path).observations
    assert [(seen.step, seen.epoch) for seen in before] == [(n, n / 4) for n in (0, 2, 4, 6, 8)]
    trained(Lens(tmp_path, every=2), 2, step=lambda step: 6 + step)
    after = records.read(tmp_path).observations
    assert [seen.step for seen in after] == [0, 2, 4, 6]
    assert after[:3] == before[:3]
    assert after[3] != before[3]


def test_of_accumulated_batches_one_is_looked_at(tmp_path):
    trained(Lens(tmp_path, every=1), 6, step=lambda batch: batch // 2)
    assert [seen.step for seen in records.read(tmp_path).observations] == [0, 1, 2]


def test_steps_that_begin_anew_in_every_epoch_are_refused(tmp_path):
    lens = Lens(tmp_path)
    message = "step must count over all epochs, got 0 after 2"
    with pytest.raises(ValueError, match=message):
        trained(lens, 4, step=lambda step: step % 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"every": 0}, "every must be a whole number above 0 or None, got 0"),
        ({"on_collapse": "pray"}, "on_collapse must be one of warn, stop, got 'pray'"),
        ({}, r"folder must be given outside of a Lightning trainer: Lens\(folder=…\)"),
    ],
)
def test_what_cannot_be_is_refused(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        trained(Lens(**arguments), 1)


def test_an_error_in_a_step_leaves_nothing_behind(tmp_path):
    lens, model = Lens(tmp_path, every=1), Model()

    def fail():
        with lens.recording(model):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not model.backbone._forward_hooks
    trained(lens, 1, model)
    assert [seen.step for seen in records.read(tmp_path).observations] == [1]


class Collapsed(Model):
    """Every image has the same projection, but for noise."""

    def forward(self, x):
        return super().forward(x) * 0 + torch.randn(16, 4)


def test_a_collapse_is_told_without_epochs(tmp_path, caplog):
    lens = Lens(tmp_path, every=1, on_collapse="stop")
    with caplog.at_level(logging.WARNING):
        for _ in range(40):
            trained(lens, 0 if lens.stopped else 1, Collapsed())
    # Ten observations are the warm-up, and the symptom has to last.
    assert 10 <= lens.last.step < 20
    assert "lower margins.positive_scale (now 2)" in caplog.text
    assert "method_kwargs" not in caplog.text
    advice = advise([str(tmp_path)])
    assert "lower margins.positive_scale (now 2) or ramp it up over the first epochs" in advice
    assert "method_kwargs" not in advice


def test_all_ranks_of_a_loop_stop_together(tmp_path):
    first, second = run_processes(2, collapsing_rank, str(tmp_path))
    assert first == second
    step, reason, is_measured = first
    assert 10 <= step < 20
    assert "chance" in reason or "effective rank" in reason
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
    page = lens_report.write_report([*map(str, folders), f"output={tmp_path / 'report.html'}"])
    text = page.read_text()
    assert "margins" in text
    assert "torch" in runs[0].versions
    assert 'class="box notes"' not in text


def test_the_loop_and_the_ramp_of_the_documentation(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "lens.md").read_text()
    page = page[page.index("### In your own training loop") : page.index("### What it costs")]
    _, loop, ramp = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names = {}
    exec(loop, names)
    assert records.read(tmp_path / "outputs" / "my_loop").observations
    exec(ramp, names)
    assert names["criterion"].margins == Margins(positive_scale=20.0)
    # The next step is observed with them.
    lens = Lens(tmp_path / "ramped", every=1)
    with lens.recording(names["model"]):
        names["criterion"](*map(names["model"], names["views"]))
    assert lens.last.margins["positive_scale"] == 20.0


class Lightning(pl.LightningModule):
    """A module of somebody's own, with our loss."""

    def __init__(self):
        super().__init__()
        self.encoder, self.projector = nn.Linear(8, 6), nn.Linear(6, 4)

    def training_step(self, batch, index):
        return CRITERION(*(self.projector(self.encoder(view)) for view in batch))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize("where", ["told", "logs", "checkpoints", "root"])
def test_any_lightning_module_in_any_trainer(tmp_path, where):
    views = torch.utils.data.TensorDataset(torch.randn(16, 8), torch.randn(16, 8))
    folder = {
        "told": tmp_path / "mine",
        "logs": tmp_path / "lightning_logs" / "version_0",
        "checkpoints": tmp_path / "kept",
        "root": tmp_path,
    }[where]
    more = {"logger": where == "logs" and pl.loggers.CSVLogger(tmp_path)}
    callbacks = [Lens(folder if where == "told" else None, every=2)]
    if where == "checkpoints":
        callbacks.append(pl.callbacks.ModelCheckpoint(folder))
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=2,
        callbacks=callbacks,
        default_root_dir=tmp_path,
        enable_checkpointing=where != "root",
        enable_progress_bar=False,
        enable_model_summary=False,
        **more,
    )
    trainer.fit(Lightning(), torch.utils.data.DataLoader(views, batch_size=4))
    run = records.read(folder)
    assert [(seen.step, seen.epoch) for seen in run.observations] == [
        (n, n / 4) for n in (0, 2, 4, 6)
    ]
    assert {"effective_rank", "q", "uniformity"} <= run.observations[0].scalars.keys()
    assert load_runs([folder])[1] == []
    if where == "logs":
        assert "lens/q" in (folder / "metrics.csv").read_text().splitlines()[0]
