"""Files of others are data: nothing in them runs, and nothing is fetched from elsewhere."""

import ast
import contextlib
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from solo_margins import checkpoints, training
from solo_margins.backbones import build_backbone, load_backbone
from solo_margins.evaluation import knn, probe

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted(
    path
    for part in ("solo_margins", "scripts", "hydra_plugins")
    for path in (ROOT / part).rglob("*.py")
) + sorted(ROOT.glob("*.py"))


# sources


def _name(node):
    """Return a dotted name as it is written, such as ``torch.load``."""
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def _constant(call, keyword):
    for given in call.keywords:
        if given.arg == keyword:
            return getattr(given.value, "value", "not a constant")
    return None


FORBIDDEN = {
    "eval",
    "exec",
    "compile",
    "os.system",
    "os.popen",
    "pickle.load",
    "pickle.loads",
    "pickle.Unpickler",
    "cloudpickle.load",
    "joblib.load",
    "marshal.loads",
    "shelve.open",
    "yaml.unsafe_load",
    "yaml.full_load",
}


def dangers(source):
    """Return what in a piece of Python could execute what a file or a user says."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = _name(node.func)
        if name in FORBIDDEN:
            yield name
        if name == "torch.load" and _constant(node, "weights_only") is not True:
            yield "torch.load without weights_only=True"
        if name == "yaml.load" and "Safe" not in ast.unparse(node):
            yield "yaml.load without a safe loader"
        if name.endswith(".extractall"):
            yield "an archive that is unpacked unseen"
        if _constant(node, "shell") not in (None, False):
            yield "a command that a shell interprets"
        if _constant(node, "allow_pickle") not in (None, False):
            yield "numpy's pickles"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_sources_execute_nothing_that_they_read(path):
    assert not list(dangers(path.read_text()))


@pytest.mark.parametrize(
    ("line", "is_dangerous"),
    [
        ("eval(x)", True),
        ("torch.load(p)", True),
        ("torch.load(p, weights_only=False)", True),
        ("torch.load(p, weights_only=True)", False),
        ("yaml.load(f)", True),
        ("yaml.load(f, Loader=SafeLoader)", False),
        ("subprocess.run(c, shell=True)", True),
        ("pickle.load(f)", True),
        ("numpy.load(f, allow_pickle=True)", True),
    ],
)
def test_the_scan_finds_what_it_looks_for(line, is_dangerous):
    assert bool(list(dangers(line))) == is_dangerous


# checkpoints


class Malicious:
    """Makes a file when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.fixture
def marker(tmp_path):
    """A folder that must never appear."""
    return tmp_path / "executed"


@pytest.fixture
def bait(marker):
    """Put a malicious file in the place of a checkpoint."""

    def write(path, how="checkpoint", content=None):
        content = {**(content or {}), "extra": Malicious(marker)}
        if how == "checkpoint":
            torch.save(content, path)
        else:
            path.write_bytes(pickle.dumps(content))
        with contextlib.suppress(RuntimeError):  # no checkpoint, which is noticed too late
            torch.load(path, weights_only=False)
        assert marker.is_dir(), "the bait is harmless"
        marker.rmdir()
        return path

    return write


def refused(call, path, marker):
    with pytest.raises(ValueError) as caught:
        call()
    assert not marker.exists(), "a checkpoint was executed"
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture
def pretrained(raw_config):
    """A configuration and the checkpoint that it made."""
    cfg = raw_config("simclr_margin", "max_epochs=1", "enable_progress_bar=false")
    del cfg["devices"], cfg["performance"]
    return cfg, training.pretrain(cfg).checkpoint


@pytest.fixture(params=[None, "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"])
def environment(request, monkeypatch):
    """An environment in which PyTorch's default is safe, and one in which it is not."""
    if request.param is not None:
        monkeypatch.setenv(request.param, "1")


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("how", ["checkpoint", "pickle"])
def test_a_malicious_backbone_is_refused(pretrained, bait, marker, how):
    cfg, checkpoint = pretrained
    bait(checkpoint, how, torch.load(checkpoint, weights_only=True))
    linear = OmegaConf.create(
        {
            "pretrained_feature_extractor": str(checkpoint),
            "backbone": {"name": None},
            "data": {"dataset": "custom", "num_workers": 0},
            "optimizer": cfg.optimizer,
            "scheduler": {"name": "none"},
            "max_epochs": 1,
            "checkpoint": cfg.checkpoint,
        }
    )
    linear.data.train_path, linear.data.val_path = cfg.data.train_path, cfg.data.val_path
    refused(lambda: training.linear(linear), checkpoint, marker)
    arguments = [f"pretrained_feature_extractor={checkpoint}", "data.num_workers=0"]
    refused(lambda: knn.knn(arguments, progress=False), checkpoint, marker)
    refused(lambda: probe.probe(arguments, progress=False), checkpoint, marker)
    backbone = build_backbone(cfg)
    refused(lambda: load_backbone(backbone, checkpoint), checkpoint, marker)


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("how", ["checkpoint", "pickle"])
def test_a_malicious_checkpoint_is_not_resumed_from(
    pretrained, bait, marker, tmp_path, caplog, how
):
    cfg, checkpoint = pretrained
    content = torch.load(checkpoint, weights_only=True)
    given = bait(tmp_path / "given.ckpt", how, content)
    named = cfg.copy()
    named.resume_from_checkpoint = str(given)
    refused(lambda: training.pretrain(named), given, marker)
    # Lying where auto-resume looks, as the newest one.
    newest = bait(checkpoint.with_name("study-ep99.ckpt"), how, content)
    os.utime(checkpoint, (1e9, 1e9))
    resumed = cfg.copy()
    resumed.auto_resume = {"enabled": True}
    if how == "checkpoint":
        refused(lambda: training.pretrain(resumed), newest, marker)
        return
    # No checkpoint by its form: the one before it is taken.
    assert training.pretrain(resumed).resumed_from == checkpoint
    assert not marker.exists()
    assert str(newest) in caplog.text


@pytest.mark.parametrize("content", [b"", b"hello", "half"])
def test_a_damaged_checkpoint_is_one_sentence(pretrained, tmp_path, content):
    cfg, checkpoint = pretrained
    if content == "half":
        whole = checkpoint.read_bytes()
        content = whole[: len(whole) // 2]
    path = tmp_path / "damaged.ckpt"
    path.write_bytes(content)
    cfg.resume_from_checkpoint = str(path)
    with pytest.raises(ValueError, match="damaged") as caught:
        training.pretrain(cfg)
    assert "\n" not in str(caught.value)


def test_a_checkpoint_holds_settings_and_weights(tmp_path):
    torch.save([1, 2], tmp_path / "list.ckpt")
    with pytest.raises(ValueError, match="list"):
        checkpoints.read_checkpoint(tmp_path / "list.ckpt")
    old = tmp_path / "old.ckpt"
    torch.save({"a": torch.ones(2)}, old, _use_new_zipfile_serialization=False)
    assert checkpoints.read_checkpoint(old, in_place=True)["a"].sum() == 2


def test_the_environment_is_left_as_it_was(monkeypatch):
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    monkeypatch.delenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", raising=False)
    with checkpoints.safe_loading():
        assert os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] == "1"
        assert "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD" not in os.environ
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ
    assert os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] == "1"


# network

OFFLINE = """
import socket
asked = []
def refuse(*arguments, **settings):
    asked.append(arguments)
    raise OSError("no network")
for name in ("connect", "connect_ex"):
    setattr(socket.socket, name, refuse)
socket.getaddrinfo = socket.create_connection = refuse
from omegaconf import OmegaConf
from hydra import compose, initialize_config_module
from solo_margins import training
from solo_margins.evaluation.probe import linear_and_knn
small = ["data=digits", "max_epochs=1", "limit_train_batches=1", "data.num_workers=0"]
from solo_margins import resolvers
resolvers.install()
with initialize_config_module("solo_margins.configs", version_base=None):
    cfg = compose("simclr_margin.yaml", overrides=small)
checkpoint = training.pretrain(cfg).checkpoint
short = ["max_epochs=1", "passes=0", "data.num_workers=0"]
linear_and_knn([f"pretrained_feature_extractor={checkpoint}", *short], progress=False)
assert not asked, asked
print("offline")
"""


def test_nothing_is_asked_of_the_network(tmp_path):
    alone = []
    if shutil.which("unshare") and not subprocess.run(["unshare", "-n", "true"]).returncode:
        alone = ["unshare", "-n"]
    done = subprocess.run(
        [*alone, sys.executable, "-W", "ignore", "-c", OFFLINE],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "SOLO_MARGINS_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("offline")
