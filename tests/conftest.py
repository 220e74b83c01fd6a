"""Images, configurations, trainers and processes that several parts of the suite use."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import lightning.pytorch as pl
import numpy as np
import pytest
import stored_images
import torch
from method_heads import HEADS, keep_heads_of_method
from omegaconf import OmegaConf
from PIL import Image
from solo.args.pretrain import parse_cfg as parse_pretrain_cfg
from solo.methods.base import BaseMethod
from torch import nn
from views import augmentations

from solo_margins.data.datamodule import RunData

ROOT = Path(__file__).resolve().parents[1]


class TinyNetwork(nn.Module):
    """A residual-like network small enough for a test."""

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
    """Networks this small only wait for each other's threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def device(request):
    """The device to test on: ``cpu``, or what ``--device`` names."""
    return request.config.getoption("--device")


@pytest.fixture(scope="session")
def accelerator(device):
    """Lightning's name of the device."""
    return "gpu" if device == "cuda" else "cpu"


@pytest.fixture(scope="session", autouse=True)
def session_cache(tmp_path_factory):
    """A cache of the suite's own, which its processes share."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    os.environ["SOLO_MARGINS_CACHE"] = str(folder / "cache")


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory):
    """Folders train and val with three classes of noisy images, and flat without classes."""
    root = tmp_path_factory.mktemp("images")
    noise = np.random.default_rng(0)
    for split, number in (("train", 12), ("val", 5)):
        for label in range(3):
            folder = root / split / f"class{label}"
            folder.mkdir(parents=True)
            for index in range(number):
                pixels = noise.integers(0, 80, (36, 40, 3)) + 60 * label
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{index}.png")
    (root / "flat").mkdir()
    for index in range(9):
        pixels = noise.integers(0, 256, (36, 40, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(root / "flat" / f"{index}.jpg")
    return root


SIZES = {"cifar10": 32, "cifar100": 32, "stl10": 96, "tinyimagenet": 64}


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """Store a small data set of a known name as torchvision's files or as an image folder."""
    import torchvision

    def store(name, how, per_class=2, root=None):
        root = root or tmp_path / f"{name}-{how}"
        size = SIZES[name]
        train = stored_images.images_of(name, per_class, size, seed=1)
        test = stored_images.images_of(name, 1, size, seed=2)
        unlabelled, _ = stored_images.images_of(name, 3, size, seed=3)
        if how == "files":
            if name == "stl10":
                known = stored_images.write_stl10(root, train, test, unlabelled)
            else:
                known = stored_images.write_cifar(root, name, train, test)
            # torchvision compares checksums with those of the published files.
            for attribute, value in known.items():
                monkeypatch.setattr(getattr(torchvision.datasets, name.upper()), attribute, value)
        else:
            stored_images.write_folder(root / "train", *train)
            stored_images.write_folder(root / "test", *test)
            if name == "stl10":
                for number, image in enumerate(unlabelled):
                    folder = root / "train" / "unlabeled"
                    folder.mkdir(exist_ok=True)
                    Image.fromarray(image).save(folder / f"{number:05}.png")
        return root

    return store


@pytest.fixture(scope="session")
def browser():
    """A real browser."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip(f"none of the browsers {', '.join(names)} is installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def offline(monkeypatch):
    """Fail at any attempt to reach the network."""

    def refuse(*args, **kwargs):
        raise AssertionError(f"the network was asked for {args}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def composed():
    """Compose one of our configurations."""
    from hydra import compose, initialize_config_module

    def make(name, *overrides):
        with initialize_config_module("solo_margins.configs", version_base=None):
            return compose(name, overrides=list(overrides))

    return make


@pytest.fixture
def view():
    """Return what makes the augmentations of one view."""
    return augmentations


@pytest.fixture
def raw_config(image_folder, view, tmp_path, accelerator):
    """A pretraining configuration as a user writes it, before parsing."""
    BaseMethod._BACKBONES["tiny_resnet_like"] = lambda method=None, **kwargs: TinyNetwork()

    def make(method="mocov3", *overrides):
        settings = {
            "name": "contract",
            "method": method,
            "backbone": {"name": "tiny_resnet_like"},
            "method_kwargs": dict(HEADS),
            "momentum": {"base_tau": 0.9, "final_tau": 1.0, "classifier": False},
            "data": {
                "dataset": "custom",
                "train_path": str(image_folder / "train"),
                "val_path": str(image_folder / "val"),
                "num_workers": 0,
            },
            "augmentations": [view()],
            "optimizer": {
                "name": "sgd",
                "batch_size": 8,
                "lr": 0.5,
                "classifier_lr": 0.25,
                "weight_decay": 1e-4,
            },
            "scheduler": {"name": "warmup_cosine", "warmup_epochs": 1},
            "checkpoint": {"enabled": True, "dir": str(tmp_path / "runs")},
            "max_epochs": 2,
            "devices": "1",
            "strategy": "auto",
            "accelerator": accelerator,
            "performance": {"disable_channel_last": True},
        }
        cfg = OmegaConf.create(settings)
        for override in overrides:
            key, _, value = override.partition("=")
            OmegaConf.update(cfg, key, OmegaConf.from_dotlist([f"v={value}"]).v, force_add=True)
        return keep_heads_of_method(cfg, overrides)

    return make


@pytest.fixture
def config(raw_config):
    """A parsed pretraining configuration."""
    return lambda *args: parse_pretrain_cfg(raw_config(*args))


@pytest.fixture
def loaders():
    """Training and validation loaders of a parsed configuration, for any trainer."""

    def make(cfg):
        cfg = OmegaConf.merge(cfg, {"use_distributed_sampler": False})
        data = RunData(cfg, pretraining=True)
        return data.train, data.validation

    return make


@pytest.fixture
def trainer(tmp_path, accelerator):
    """A real trainer that prints nothing."""

    def make(cfg, callbacks=(), **settings):
        return pl.Trainer(
            **{
                "accelerator": accelerator,
                "devices": cfg.devices if isinstance(cfg.devices, int) else len(cfg.devices),
                "strategy": cfg.strategy,
                "max_epochs": cfg.max_epochs,
                "callbacks": list(callbacks),
                "logger": False,
                "enable_checkpointing": False,
                "enable_progress_bar": False,
                "enable_model_summary": False,
                "default_root_dir": str(tmp_path),
                **settings,
            }
        )

    return make


@pytest.fixture
def python(tmp_path):
    """Run Python in a process group of its own; the group dies with the test."""

    def run(*arguments, cwd=tmp_path, executable=sys.executable, timeout=240, env=None):
        process = subprocess.Popen(
            [str(executable), *map(str, arguments)],
            cwd=cwd,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            pytest.fail(f"no end after {timeout} s: a deadlock?\n{out}\n{err}")
        assert process.returncode == 0, f"{out}\n{err}"
        return out

    return run


@pytest.fixture
def answer(python):
    """Run a piece of Python and return the JSON in its last line."""
    return lambda code, **settings: json.loads(
        python("-W", "ignore", "-c", code, **settings).strip().splitlines()[-1]
    )
