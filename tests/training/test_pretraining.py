"""A pretraining: its folder, its logs, its settings and its mistakes."""

import csv
import importlib.util
import json
import os

import lightning.pytorch as pl
import pytest
import torch
from omegaconf import OmegaConf
from solo.methods import METHODS
from solo.methods.base import BaseMethod
from stopped_runs import BATCHES, differences, loaded, steps_of
from torch import nn

from solo_margins import cli, training
from solo_margins.methods.mocov3_margin import MoCoV3Margin
from solo_margins.training.callbacks import ProgressBar, gradient_norm
from solo_margins.training.run_folder import RUN_ID_VARIABLE


def logged(folder):
    """Return the values by column of a run's CSV file."""
    columns = {}
    with open(folder / "logs" / "version_0" / "metrics.csv") as file:
        for row in csv.DictReader(file):
            for name, value in row.items():
                if value:
                    columns.setdefault(name, []).append(float(value))
    return columns


def test_a_run_is_one_folder_with_checkpoint_settings_and_logs(
    config, image_folder, tmp_path, capsys
):
    cfg = config("knn_eval.enabled=true", "knn_eval.k=3", "method=simclr_margin")
    before = OmegaConf.to_container(cfg)
    sizes_seen = BaseMethod._BACKBONES[cfg.backbone.name]().sizes_seen

    def remember(method=None, **kwargs):
        network = original()
        network.sizes_seen = sizes_seen
        return network

    original = BaseMethod._BACKBONES[cfg.backbone.name]
    BaseMethod._BACKBONES[cfg.backbone.name] = remember
    result = training.pretrain(cfg)

    assert OmegaConf.to_container(cfg) == before, "the caller's configuration was changed"
    assert result.folder.parent == tmp_path / "runs" / "simclr_margin"
    assert list(result.folder.glob("*.ckpt")) == [result.checkpoint]
    assert steps_of(result.checkpoint) == 2 * BATCHES
    assert sizes_seen == {(16, 16)}, "validation has another size than the recipe"
    args = json.loads((result.folder / "args.json").read_text())
    assert args["run_id"] == result.folder.name
    assert {"val_acc1", "val_knn_acc1", "train_acc1_epoch"} <= result.metrics.keys()
    columns = logged(result.folder)
    assert len(columns["grad_norm"]) == 2, "an epoch shorter than the log interval logs nothing"
    assert any(name.startswith("lr-") for name in columns)
    said = capsys.readouterr().out
    layer, neighbours = (result.metrics[name] for name in ("val_acc1", "val_knn_acc1"))
    images = len(list((image_folder / "val").glob("*/*")))
    for part in (f"{layer:.2f} %", f"{neighbours:.2f} %", f"{images} validation", result.folder):
        assert str(part) in said.splitlines()[-1]
    assert RUN_ID_VARIABLE not in os.environ


def test_two_runs_of_the_same_settings_have_two_folders_and_the_same_weights(config):
    runs = [training.pretrain(config("max_epochs=1")) for _ in range(2)]
    assert [run.folder.name for run in runs] == ["study", "study-2"]
    assert differences(*(run.checkpoint for run in runs)) == []
    other = training.pretrain(config("max_epochs=1", "seed=6")).checkpoint
    assert "backbone.convolution.weight" in differences(runs[0].checkpoint, other)


def test_the_gradient_norm_is_that_before_clipping(config):
    settings = ("max_epochs=1", "log_every_n_steps=1")
    columns = logged(training.pretrain(config(*settings, "gradient_clip_val=0.001")).folder)
    assert len(columns["grad_norm"]) == BATCHES
    assert min(columns["grad_norm"]) > 1e-2
    free = logged(training.pretrain(config(*settings)).folder)
    assert free["grad_norm"][0] == pytest.approx(columns["grad_norm"][0], rel=1e-5)
    assert free["grad_norm"][1] != pytest.approx(columns["grad_norm"][1], rel=1e-5)
    pairs = zip(columns["grad_norm_backbone"], columns["grad_norm"], strict=True)
    assert all(0 < part < whole for part, whole in pairs)


def test_the_norm_of_a_gradient():
    network = nn.Linear(3, 2)
    network(torch.ones(1, 3)).sum().backward()
    assert gradient_norm(network).item() == pytest.approx((6 + 2) ** 0.5)
    assert gradient_norm(nn.Linear(3, 2)).item() == 0


def test_settings_of_the_trainer_reach_it(config):
    settings = ("max_epochs=50", "checkpoint.frequency=20", "accumulate_grad_batches=2")
    result = training.pretrain(config(*settings, "max_steps=3", "precision=bf16-mixed"))
    state = loaded(result.checkpoint)
    assert state["global_step"] == 3
    assert state["epoch"] == 1, "2 steps an epoch: the third is in the second epoch"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("devices", ["1", "[0]", "'1'", "null"])
def test_any_way_to_write_one_device_works_without_a_gpu(config, devices):
    settings = ("accelerator=auto", "strategy=null", f"devices={devices}", "limit_train_batches=1")
    assert steps_of(training.pretrain(config(*settings, "max_epochs=1")).checkpoint) == 1


def test_images_without_classes_and_without_validation(config, image_folder):
    flat = f"data.train_path={image_folder / 'flat'}"
    result = training.pretrain(config(flat, "data.val_path=null", "data.no_labels=true"))
    assert result.checkpoint.is_file()
    assert "val_acc1" not in result.metrics


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("method=mocov4", r"method .*mocov3_margin.*'mocov4'"),
        ("method=null", r"method"),
        ("backbone.name=resnet19", r"backbone\.name .*resnet18.*'resnet19'"),
        ("optimizer.name=sdg", r"optimizer\.name .*lars.*'sdg'"),
        ("scheduler.name=cosine", r"scheduler\.name .*warmup_cosine.*'cosine'"),
        ("scheduler.name=exponential", r"scheduler\.name .*warmup_cosine.*'exponential'"),
        ("scheduler.name=step", r"scheduler\.lr_decay_steps.*None"),
        ("data.dataset=mnist", r"data\.dataset .*custom.*'mnist'"),
        ("data.train_path=/nowhere", r"data\.train_path=/nowhere"),
        ("data.train_path='???'", r"data\.train_path"),
        ("data.val_path=/nowhere", r"data\.val_path=/nowhere"),
        ("optimizer.batch_size=64", r"batch_size=64 .*36"),
        ("augmentations.0.num_crops=3", r"2 large crops.* 3"),
        ("loggers.tensorbord=true", r"'tensorbord'.*tensorboard"),
        ("resume_from_checkpoint=/nowhere.ckpt", r"/nowhere\.ckpt"),
        ("max_epochs=null", r"max_epochs"),
        ("name=${nowhere}", r"'nowhere'"),
        ("auto_umap.enabled=true", r"auto_umap"),
        ("numerics.on_nonfinite=ignore", r"on_nonfinite .*'ignore'"),
        ("numerics.max_consecutive_skips=0", r"max_consecutive_skips"),
        ("numerics.max_skips=1", r"max_consecutive_skips"),
        ("numerics=skip", r"numerics"),
    ],
)
def test_mistakes_are_explained_in_one_line(config, override, named):
    with pytest.raises(ValueError, match=named) as caught:
        training.pretrain(config(override))
    assert len(str(caught.value).splitlines()) == 1


def test_an_empty_configuration_asks_for_one():
    with pytest.raises(ValueError, match="--config-name"):
        training.pretrain(OmegaConf.create({}))


@pytest.mark.parametrize(
    ("setting", "package"), [("loggers.tensorboard", "tensorboard"), ("wandb.enabled", "wandb")]
)
def test_a_logger_that_is_not_installed_is_named(config, setting, package):
    if importlib.util.find_spec(package):
        pytest.skip(f"{package} is installed")
    with pytest.raises(ValueError, match=f"pip install {package}"):
        training.pretrain(config(f"{setting}=true"))


def test_mistakes_end_a_program_and_faults_keep_their_trace(
    config, capsys, monkeypatch, start, finish
):
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    with pytest.raises(SystemExit) as caught:
        cli.run_cli(training.pretrain, config("method=mocov4"))
    assert caught.value.code == 1
    assert capsys.readouterr().err.startswith("Error: method ")
    monkeypatch.setenv("SOLO_MARGINS_DEBUG", "1")
    with pytest.raises(ValueError):
        cli.run_cli(training.pretrain, config("method=mocov4"))
    monkeypatch.delenv("SOLO_MARGINS_DEBUG")

    class Broken(MoCoV3Margin):
        def __init__(self, cfg):
            raise TypeError("a bug")

    monkeypatch.setitem(METHODS, "mocov3_margin", Broken)
    with pytest.raises(TypeError, match="a bug"):
        cli.run_cli(training.pretrain, config())
    monkeypatch.undo()

    class Wrong(MoCoV3Margin):
        def __init__(self, cfg):
            self.one, self.two = range(3)

    # It looks like a wrong setting, so where it comes from can be asked.
    monkeypatch.setitem(METHODS, "mocov3_margin", Wrong)
    with pytest.raises(SystemExit):
        cli.run_cli(training.pretrain, config())
    assert capsys.readouterr().err.endswith("(SOLO_MARGINS_DEBUG=1 shows where)\n")
    monkeypatch.undo()
    # What the package says itself is clear, also where it is the program.
    for wrong in (["solo_margins.lens", "nothing"], ["solo_margins.knn", "k"]):
        run = finish(start("-m", *wrong))
        assert run.code == 1
        assert run.err.startswith("Error: ")
        assert "SOLO_MARGINS_DEBUG" not in run.err


def test_callbacks_of_lightning_can_be_added(config):
    class Counter(pl.Callback):
        steps = 0

        def on_train_batch_end(self, *arguments):
            self.steps += 1

    counter = Counter()
    training.pretrain(config("max_epochs=1"), callbacks=[counter])
    assert counter.steps > 0


def test_the_progress_bar_is_calm_in_a_file(config, capsys):
    assert ProgressBar(200).refresh_rate == 200
    training.pretrain(config("enable_progress_bar=true", "max_epochs=2"))
    said = capsys.readouterr()
    assert "Epoch 1: 100%" in said.out + said.err
    assert "loss=" in said.out + said.err
