"""A pretraining: its folder, its logs, its settings and its mistakes."""

import csv
import importlib.util
import json
import os

import pytest
import torch
from omegaconf import OmegaConf
from solo.methods import METHODS
from solo.methods.base import BaseMethod
from torch import nn

from solo_margins import cli, training
from solo_margins.methods.mocov3_margin import MoCoV3Margin
from solo_margins.training.callbacks import ProgressBar, gradient_norm
from solo_margins.training.checkpointing import RUN_ID_VARIABLE

BATCHES = 4


def logged(folder, version=0):
    """Values by column of a run's CSV file."""
    columns = {}
    with open(folder / "logs" / f"version_{version}" / "metrics.csv") as file:
        for row in csv.DictReader(file):
            for name, value in row.items():
                if value:
                    columns.setdefault(name, []).append(float(value))
    return columns


def steps_of(checkpoint):
    return torch.load(checkpoint, weights_only=True)["global_step"]


def weights_of(checkpoint):
    return torch.load(checkpoint, weights_only=True)["state_dict"]


def test_a_run_is_one_folder_with_checkpoint_settings_and_logs(
    config, image_folder, tmp_path, capsys
):
    cfg = config("knn_eval.enabled=true", "knn_eval.k=3", "method=simclr_margin")
    before = OmegaConf.to_container(cfg)
    result = training.pretrain(cfg)

    assert OmegaConf.to_container(cfg) == before, "the caller's configuration was changed"
    assert result.folder.parent == tmp_path / "runs" / "simclr_margin"
    assert result.checkpoint.parent == result.folder
    assert list(result.folder.glob("*.ckpt")) == [result.checkpoint]
    assert steps_of(result.checkpoint) == 2 * BATCHES
    args = json.loads((result.folder / "args.json").read_text())
    assert args["run_id"] == result.folder.name
    assert {"val_acc1", "val_knn_acc1", "train_acc1_epoch"} <= result.metrics.keys()
    assert 0 <= result.metrics["val_knn_acc1"] <= 100
    columns = logged(result.folder)
    assert len(columns["grad_norm"]) == 2, "an epoch shorter than the log interval logs nothing"
    assert any(name.startswith("lr-") for name in columns)
    said = capsys.readouterr().out
    assert str(result.checkpoint) in said
    layer, neighbours = (result.metrics[name] for name in ("val_acc1", "val_knn_acc1"))
    images = len(list((image_folder / "val").glob("*/*")))
    assert (
        f"Online classifier: {layer:.2f} %, kNN: {neighbours:.2f} % (top 1, {images} validation "
        f"images); run folder: {result.folder}\n"
    ) in said
    assert (result.folder / "logs").is_dir()
    assert RUN_ID_VARIABLE not in os.environ


def test_two_runs_of_the_same_settings_have_two_folders_and_the_same_weights(config):
    runs = [training.pretrain(config("max_epochs=1")) for _ in range(2)]
    assert [run.folder.name for run in runs] == ["study", "study-2"]
    first, second = (weights_of(run.checkpoint) for run in runs)
    assert all(torch.equal(first[key], second[key]) for key in first)
    other = weights_of(training.pretrain(config("max_epochs=1", "seed=6")).checkpoint)
    key = "backbone.convolution.weight"
    assert not torch.equal(first[key], other[key])


def test_the_gradient_norm_is_that_before_clipping(config):
    settings = ("max_epochs=1", "log_every_n_steps=1")
    clipped = training.pretrain(config(*settings, "gradient_clip_val=0.001")).folder
    columns = logged(clipped)
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
    state = torch.load(result.checkpoint, weights_only=True)
    assert state["global_step"] == 3
    assert state["epoch"] == 1, "2 steps an epoch: the third is in the second epoch"
    short = training.pretrain(config("max_epochs=1", "limit_train_batches=2"))
    assert steps_of(short.checkpoint) == 2


@pytest.mark.parametrize("devices", ["1", "[0]", "'1'", "null"])
def test_any_way_to_write_one_device_works_without_a_gpu(config, devices):
    settings = ("accelerator=auto", "strategy=null", f"devices={devices}", "limit_train_batches=1")
    if not torch.cuda.is_available():
        assert training.pretrain(config(*settings, "max_epochs=1")).checkpoint


def test_images_without_classes_and_without_validation(config, image_folder, capsys):
    flat = f"data.train_path={image_folder / 'flat'}"
    result = training.pretrain(config(flat, "data.val_path=null", "data.no_labels=true"))
    assert result.checkpoint.is_file()
    assert "val_acc1" not in result.metrics
    assert "classifier: " not in capsys.readouterr().out


def test_no_checkpoint_and_no_log_if_so_configured(config):
    off = ("checkpoint.enabled=false", "loggers.csv=false", "max_epochs=1")
    result = training.pretrain(config(*off))
    assert result.checkpoint is None
    assert not result.folder.exists()


def test_validation_sees_images_of_the_recipes_size(config):
    network = None

    def remember(method=None, **kwargs):
        nonlocal network
        network = original()
        return network

    cfg = config("max_epochs=1", "method=simclr_margin")
    original = BaseMethod._BACKBONES[cfg.backbone.name]
    BaseMethod._BACKBONES[cfg.backbone.name] = remember
    training.pretrain(cfg)
    assert network.sizes_seen == {(16, 16)}


def test_auto_resume_goes_on_in_the_same_folder(config):
    resume = "auto_resume.enabled=true"
    short = training.pretrain(config(resume, "limit_train_batches=2"))
    half = training.pretrain(config("run_id=half", "checkpoint.keep_prev=true"))
    assert half.folder != short.folder
    # As if it had been killed after its first epoch.
    half.checkpoint.unlink()
    [first] = half.folder.glob("*.ckpt")
    assert steps_of(first) == BATCHES

    same = training.pretrain(config(resume))
    assert same.folder == half.folder
    assert steps_of(same.checkpoint) == 2 * BATCHES
    assert list(same.folder.glob("*.ckpt")) == [same.checkpoint]
    assert (same.folder / "logs" / "version_0" / "metrics.csv").is_file()
    assert logged(same.folder, version=1)["epoch"][0] == 1

    assert training.pretrain(config(resume, "seed=6")).folder != half.folder
    variant = config(resume, "method_kwargs.temperature=0.3")
    assert training.pretrain(variant).folder != half.folder


def test_a_finished_run_is_not_trained_again(config, capsys):
    done = training.pretrain(config("max_epochs=1"))
    said = capsys.readouterr().out
    again = training.pretrain(config("max_epochs=1", "auto_resume.enabled=true"))
    assert again.checkpoint == done.checkpoint
    assert said.splitlines()[-1].startswith("Online classifier: ")
    assert said.splitlines()[-1] in capsys.readouterr().out
    assert steps_of(again.checkpoint) == BATCHES


def test_a_run_that_cannot_start_leaves_its_name_to_the_next(config, tmp_path):
    with pytest.raises(ValueError, match="barebones"):
        training.pretrain(config("barebones=true", "max_epochs=1"))
    assert not (tmp_path / "runs" / "mocov3_margin" / "study").exists()


def test_an_explicit_checkpoint_starts_a_folder_of_its_own(config):
    first = training.pretrain(config("max_epochs=1"))
    second = training.pretrain(config(f"resume_from_checkpoint={first.checkpoint}"))
    assert second.folder != first.folder
    assert first.checkpoint.is_file()
    assert steps_of(second.checkpoint) == 2 * BATCHES


def test_a_run_id_names_the_folder_and_protects_it(config, tmp_path):
    result = training.pretrain(config("run_id=seed5", "max_epochs=1"))
    assert result.folder == tmp_path / "runs" / "mocov3_margin" / "seed5"
    with pytest.raises(ValueError, match=r"run_id=seed5.*already holds a run;"):
        training.pretrain(config("run_id=seed5", "max_epochs=1"))
    with pytest.raises(ValueError, match="with other settings"):
        training.pretrain(config("run_id=seed5", "seed=6", "auto_resume.enabled=true"))
    with pytest.raises(ValueError, match=r"run_id names a folder.*'\.\./x'"):
        training.pretrain(config("run_id=../x"))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("method=mocov4", r"method must be one of .*mocov3_margin.*'mocov4'"),
        ("method=null", r"needs a value for method"),
        ("backbone.name=resnet19", r"backbone\.name must be one of .*resnet18.*'resnet19'"),
        ("optimizer.name=sdg", r"optimizer\.name must be one of .*lars.*'sdg'"),
        ("scheduler.name=cosine", r"scheduler\.name must be one of .*warmup_cosine.*'cosine'"),
        ("data.dataset=mnist", r"data\.dataset must be one of .*custom.*'mnist'"),
        ("data.train_path=/nowhere", r"data\.train_path=/nowhere is not an existing folder"),
        ("data.train_path='???'", r"data\.train_path has no value"),
        ("data.val_path=/nowhere", r"data\.val_path=/nowhere is not an existing folder"),
        ("optimizer.batch_size=64", r"batch_size=64 exceeds the 36 training images"),
        ("augmentations.0.num_crops=3", r"2 large crops, but augmentations make 3"),
        ("loggers.tensorbord=true", r"no setting 'tensorbord'.*tensorboard"),
        ("resume_from_checkpoint=/nowhere.ckpt", r"/nowhere\.ckpt does not exist"),
        ("max_epochs=null", r"needs a value for max_epochs"),
        ("name=${nowhere}", r"Interpolation key 'nowhere' not found"),
        ("auto_umap.enabled=true", r"auto_umap"),
    ],
)
def test_mistakes_are_explained_in_one_line(config, override, message):
    with pytest.raises(ValueError, match=message) as caught:
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


def test_an_unexpected_error_keeps_its_trace(config, monkeypatch):
    class Broken(MoCoV3Margin):
        def __init__(self, cfg):
            raise TypeError("a bug")

    monkeypatch.setitem(METHODS, "mocov3_margin", Broken)
    with pytest.raises(TypeError, match="a bug"):
        cli.run_cli(training.pretrain, config())


def test_mistakes_end_a_program_with_code_1(config, capsys, monkeypatch):
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    with pytest.raises(SystemExit) as caught:
        cli.run_cli(training.pretrain, config("method=mocov4"))
    assert caught.value.code == 1
    assert capsys.readouterr().err.startswith("Error: method must be one of")
    monkeypatch.setenv("SOLO_MARGINS_DEBUG", "1")
    with pytest.raises(ValueError):
        cli.run_cli(training.pretrain, config("method=mocov4"))


def test_the_progress_bar_is_calm_in_a_file(config, capsys):
    assert ProgressBar(200).refresh_rate == 200
    training.pretrain(config("enable_progress_bar=true", "max_epochs=2"))
    said = capsys.readouterr()
    assert "Epoch 1: 100%" in said.out + said.err
    assert "loss=" in said.out + said.err
