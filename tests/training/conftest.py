"""Configurations and processes for the runner's tests."""

import pytest
import yaml
from method_heads import keep_heads_of_method
from omegaconf import OmegaConf
from processes import started_programs
from solo.methods import METHODS


def changed(settings, overrides):
    cfg = OmegaConf.create(settings)
    for override in overrides:
        key, _, value = override.partition("=")
        OmegaConf.update(cfg, key, yaml.safe_load(value), force_add=True)
    return cfg


@pytest.fixture
def config(raw_config):
    """A complete pretraining configuration, changed by overrides."""

    def make(*overrides):
        settings = raw_config("mocov3_margin")
        # The runner chooses them.
        del settings["devices"], settings["accelerator"], settings["performance"]
        calm = [
            "name=study",
            "scheduler.warmup_epochs=0",
            "optimizer.classifier_lr=0.5",
            "enable_progress_bar=false",
            "enable_model_summary=false",
        ]
        return keep_heads_of_method(changed(settings, [*calm, *overrides]), overrides)

    return make


@pytest.fixture
def linear_config(raw_config, image_folder, tmp_path):
    """A linear configuration that names neither backbone nor image size."""
    raw_config()  # makes the small backbone known

    def make(checkpoint, *overrides):
        settings = {
            "name": "probe",
            "pretrained_feature_extractor": str(checkpoint),
            "backbone": {"name": None},
            "pretrain_method": None,
            "data": {
                "dataset": "custom",
                "train_path": str(image_folder / "train"),
                "val_path": str(image_folder / "val"),
                "num_workers": 0,
                "augmentations": None,
            },
            "optimizer": {"name": "sgd", "batch_size": 8, "lr": 3.0, "weight_decay": 0},
            "scheduler": {"name": "step", "lr_decay_steps": [3]},
            "checkpoint": {"enabled": True, "dir": str(tmp_path / "runs")},
            "max_epochs": 2,
            "enable_progress_bar": False,
            "enable_model_summary": False,
        }
        return changed(settings, overrides)

    return make


@pytest.fixture
def written(config, tmp_path):
    """Arguments that name a configuration file with a backbone that every process knows."""
    cfg = config("backbone.name=resnet18", "checkpoint.dir=runs", "method=mocov3_margin")
    cfg.accelerator, cfg.devices, cfg.strategy, cfg.seed = "auto", "1", "auto", 5
    return ["--config-dir", write_for_hydra(cfg, tmp_path), "--config-name", "own"]


@pytest.fixture
def own(raw_config, tmp_path):
    """Arguments that name a configuration as solo-learn's users write them, for its programs."""
    short = ["max_epochs=1", "limit_train_batches=2", "limit_val_batches=1"]
    # With heads for SimCLR and, where a test changes the method, for MoCo v3.
    cfg = raw_config("mocov3", "name=own", "backbone.name=resnet18", *short)
    cfg.method = "simclr"
    cfg.optimizer.name, cfg.strategy, cfg.checkpoint.dir = "lars", "auto", "trained_models"
    cfg.data.format = "image_folder"
    return ["--config-path", write_for_hydra(cfg, tmp_path), "--config-name", "own"]


def write_for_hydra(cfg, folder):
    """Write a configuration that leaves no files of Hydra behind, and return its folder."""
    cfg.defaults = [
        "_self_",
        {"override hydra/hydra_logging": "disabled"},
        {"override hydra/job_logging": "disabled"},
    ]
    cfg.hydra = {"output_subdir": None, "run": {"dir": "."}, "sweep": {"dir": ".", "subdir": "."}}
    cfg.auto_resume = {"enabled": False}
    (folder / "conf").mkdir()
    OmegaConf.save(cfg, folder / "conf" / "own.yaml")
    return folder / "conf"


@pytest.fixture
def before_step(monkeypatch):
    """Let a method call a function before a step of a given number; without one, let it be."""

    def arrange(step=None, function=None, method="mocov3_margin", hook="on_train_batch_start"):
        original = METHODS[method]
        original = getattr(original, "undisturbed", original)

        class Disturbed(original):
            undisturbed = original

        def disturbed(self, *args, **kwargs):
            if self.trainer.global_step == step and not self.trainer.sanity_checking:
                function()
            return getattr(original, hook)(self, *args, **kwargs)

        setattr(Disturbed, hook, disturbed)
        monkeypatch.setitem(METHODS, method, original if step is None else Disturbed)

    return arrange


class Finished:
    """Output and exit code of a process."""

    def __init__(self, process, out, err):
        self.code, self.out, self.err = process.returncode, out, err
        self.pid = process.pid


@pytest.fixture
def start(tmp_path):
    """Start Python in a foreign folder and in a process group of its own."""
    with started_programs(tmp_path) as run:
        yield run


@pytest.fixture
def finish():
    """Wait for a process and return what it said."""

    def wait(process, timeout=150):
        out, err = process.communicate(timeout=timeout)
        return Finished(process, out, err)

    return wait
