"""Images, configurations and processes for the runner's tests."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from omegaconf import OmegaConf
from PIL import Image
from torch import nn

from solo_margins import host

ROOT = Path(__file__).resolve().parents[2]
TINY = "tiny_network_of_the_runner_tests"
BATCHES = 4
"""Training batches in an epoch: 36 images in batches of 8, the last one dropped."""


class TinyNetwork(nn.Module):
    num_features = 8

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3, stride=2, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.sizes_seen = set()

    def forward(self, x):
        self.sizes_seen.add(tuple(x.shape[2:]))
        return torch.relu(self.norm(self.convolution(x))).mean(dim=(2, 3))


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def tiny_network(monkeypatch):
    monkeypatch.setitem(
        host.BaseMethod._BACKBONES, TINY, lambda method=None, **kwargs: TinyNetwork()
    )


@pytest.fixture(scope="session")
def images(tmp_path_factory):
    """Folders train and val with three classes that differ in brightness, and flat without."""
    root = tmp_path_factory.mktemp("images")
    noise = np.random.default_rng(0)
    for split, number in (("train", 12), ("val", 5)):
        for label in range(3):
            folder = root / split / f"class{label}"
            folder.mkdir(parents=True)
            for index in range(number):
                pixels = noise.integers(0, 60, (20, 24, 3)) + 90 * label
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{index}.png")
    (root / "flat").mkdir()
    for index in range(9):
        pixels = noise.integers(0, 256, (20, 24, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(root / "flat" / f"{index}.jpg")
    return root


def changed(settings, overrides):
    cfg = OmegaConf.create(settings)
    for override in overrides:
        key, _, value = override.partition("=")
        OmegaConf.update(cfg, key, yaml.safe_load(value), force_add=True)
    return cfg


@pytest.fixture
def config(images, tmp_path):
    """A complete pretraining configuration, changed by overrides."""

    def make(*overrides):
        view = {
            "rrc": {"enabled": True, "crop_min_scale": 0.5, "crop_max_scale": 1.0},
            "color_jitter": {
                "prob": 0.0,
                "brightness": 0.4,
                "contrast": 0.4,
                "saturation": 0.2,
                "hue": 0.1,
            },
            "grayscale": {"prob": 0.0},
            "gaussian_blur": {"prob": 0.0},
            "solarization": {"prob": 0.0},
            "equalization": {"prob": 0.0},
            "horizontal_flip": {"prob": 0.5},
            "crop_size": 16,
            "num_crops": 2,
        }
        settings = {
            "name": "study",
            "method": "mocov3",
            "backbone": {"name": TINY},
            "method_kwargs": {
                "proj_hidden_dim": 16,
                "proj_output_dim": 8,
                "pred_hidden_dim": 16,
                "temperature": 0.2,
            },
            "momentum": {"base_tau": 0.9, "final_tau": 1.0, "classifier": False},
            "data": {
                "dataset": "custom",
                "train_path": str(images / "train"),
                "val_path": str(images / "val"),
                "num_workers": 0,
            },
            "augmentations": [view],
            "optimizer": {
                "name": "sgd",
                "batch_size": 8,
                "lr": 0.5,
                "classifier_lr": 0.5,
                "weight_decay": 1e-4,
            },
            "scheduler": {"name": "warmup_cosine", "warmup_epochs": 0},
            "checkpoint": {"enabled": True, "dir": str(tmp_path / "runs")},
            "max_epochs": 2,
            "enable_progress_bar": False,
            "enable_model_summary": False,
        }
        return changed(settings, overrides)

    return make


@pytest.fixture
def linear_config(images, tmp_path):
    """A linear configuration that names neither backbone nor image size."""

    def make(checkpoint, *overrides):
        settings = {
            "name": "probe",
            "pretrained_feature_extractor": str(checkpoint),
            "backbone": {"name": None},
            "pretrain_method": None,
            "data": {
                "dataset": "custom",
                "train_path": str(images / "train"),
                "val_path": str(images / "val"),
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


class Finished:
    """Output and exit code of a process."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def start(tmp_path):
    """Start Python in a foreign folder and in a process group of its own."""
    started = []

    def run(*arguments):
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", *map(str, arguments)],
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def finish():
    """Wait for a process and return what it said."""

    def wait(process, timeout=150):
        out, err = process.communicate(timeout=timeout)
        return Finished(process.returncode, out, err)

    return wait
