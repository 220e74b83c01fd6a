"""The examples run, and the module in them is lightly's own loss where margins are off."""

import csv
import inspect
import json
import os
import re
import runpy
import shutil
import statistics
import subprocess
import sys
import sysconfig

import pytest
import torch
from documented import PAGES, ROOT, blocks
from solo.methods import METHODS

from solo_margins.lens.runs import load_runs
from solo_margins.losses import MarginNTXentLoss, Margins
from solo_margins.versions import host_folder

EXAMPLES = ROOT / "examples"

# What stable-pretraining imports for SimCLR and the tests' environment lacks.
STABLE_PRETRAINING = (
    "stable-pretraining==0.1.8",
    "cattrs",
    "certifi",
    "charset-normalizer",
    "datasets",
    "dill",
    "loguru",
    "multiprocess",
    "prettytable",
    "pyarrow",
    "regex",
    "requests",
    "requests-cache",
    "rich",
    "tabulate",
    "tokenizers",
    "transformers",
    "url-normalize",
    "urllib3",
    "xxhash",
)


SCALE = Margins(positive_scale=1.5)
MARGINS = Margins(angular=0.1, subtractive=0.4)


def run(monkeypatch, capsys, name, *arguments):
    """Return the losses that an example prints."""
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return [float(loss) for loss in re.findall(r"loss ([\d.]+)", capsys.readouterr().out)]


def check_what_the_lens_saw(folder, steps, margins=SCALE):
    """Check the observations of an example: all that a report shows, and nothing missing."""
    [seen], notes = load_runs([folder])
    assert notes == []
    assert [one.step for one in seen.lens.observations] == list(steps)
    last = seen.lens.observations[-1].scalars
    assert {"q", "push", "rankme", "uniformity"} <= last.keys()
    assert seen.margins == margins


def test_a_plain_loop(monkeypatch, capsys, tmp_path):
    losses = run(monkeypatch, capsys, "plain_pytorch.py", "--epochs", 3, "--lens", tmp_path)
    assert len(losses) == 3
    assert losses[2] < losses[0]
    check_what_the_lens_saw(tmp_path, range(0, 24, 5), Margins(positive_scale=1.5, curvature=1))


@pytest.mark.parametrize(
    ("name", "margins"),
    [("lightly_simclr.py", SCALE), ("lightly_moco.py", SCALE), ("lightly_mocov3.py", MARGINS)],
)
def test_with_lightly(monkeypatch, capsys, tmp_path, name, margins):
    pytest.importorskip("lightly")
    losses = run(monkeypatch, capsys, name, "--epochs", 1, "--images", 256, "--lens", tmp_path)
    assert len(losses) == 1
    assert 0 < losses[0] < 10
    check_what_the_lens_saw(tmp_path, [0], margins)


@pytest.fixture(scope="module")
def with_stable_pretraining(tmp_path_factory):
    """Python of an environment of its own, which borrows the packages installed here."""
    folder = tmp_path_factory.mktemp("stable_pretraining")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    executable, [packages] = folder / "bin/python", folder.glob("lib/python*/site-packages")
    pip = [executable, "-m", "pip", "install", "--quiet", "--no-deps", *STABLE_PRETRAINING]
    if subprocess.run(pip).returncode:
        pytest.skip("stable-pretraining cannot be installed here")
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    paths = os.pathsep.join([str(ROOT), str(EXAMPLES)])
    env = {"PYTHONPATH": paths, "SPT_CACHE_DIR": str(folder / "cache")}
    return {"executable": executable, "env": env}


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "margins"),
    [("stable_pretraining_simclr.py", SCALE), ("stable_pretraining_mocov3.py", MARGINS)],
)
def test_with_stable_pretraining(python, with_stable_pretraining, tmp_path, name, margins):
    out = python(EXAMPLES / name, "--lens", tmp_path / "run", **with_stable_pretraining)
    assert 0 < float(re.findall(r"loss ([\d.]+)", out)[-1]) < 10
    check_what_the_lens_saw(tmp_path / "run", range(0, 14, 5), margins)


WITHOUT_MARGINS = """
import torch
from stable_pretraining.methods import MoCov3
from stable_pretraining_mocov3 import MoCov3WithMargins, encoder
from solo_margins.losses import Margins

torch.manual_seed(0)
ours = MoCov3WithMargins(encoder(), projector_dims=(16, 16, 8), predictor_hidden_dim=16)
ours.margins = Margins()
ours.log = lambda *args, **kwargs: None  # there is no trainer
views = [{"image": torch.rand(8, 3, 16, 16)} for _ in range(2)]
theirs = MoCov3.forward(ours, views[0]["image"], views[1]["image"]).loss
torch.testing.assert_close(ours.forward({"views": views}, "fit").loss, theirs)
"""


@pytest.mark.full
def test_without_margins_it_is_stable_pretrainings_loss(python, with_stable_pretraining):
    python("-c", WITHOUT_MARGINS, **with_stable_pretraining)


@pytest.fixture
def plugin(tmp_path):
    """A folder that examples/smallest_plugin is installed into."""
    copy, folder = tmp_path / "source", tmp_path / "installed"
    shutil.copytree(EXAMPLES / "smallest_plugin", copy)  # pip builds where the sources are
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "--target", folder, copy], check=True)
    return folder


@pytest.mark.repository
def test_the_smallest_plugin_trains_in_solo_learns_program(plugin, image_folder, python, tmp_path):
    program = host_folder().parent / "main_pretrain.py"
    if not program.exists():
        pytest.skip("the installed solo-learn has no programs: set SOLO_LEARN_SRC")
    settings = [
        "data.dataset=custom",
        f"data.train_path={image_folder / 'train'}",
        f"data.val_path={image_folder / 'val'}",
        "data.num_workers=0",
        "method_kwargs.proj_hidden_dim=16",
        "optimizer.batch_size=8",
        "accelerator=cpu",
        "max_epochs=1",
        "+limit_train_batches=3",
        "+log_every_n_steps=1",
    ]
    env = {"PYTHONPATH": str(plugin), "SOLO_MARGINS_DISABLE": "1"}
    arguments = ["--config-name", "align_uniform.yaml", *settings]
    python("-W", "ignore", program, *arguments, env=env)
    [checkpoint] = tmp_path.glob("trained_models/align_uniform/*/*.ckpt")
    content = torch.load(checkpoint, weights_only=False)
    assert content["global_step"] == 3
    assert content["state_dict"]["projector.0.weight"].shape == (16, 512)
    [metrics] = tmp_path.glob("lightning_logs/*/metrics.csv")
    with metrics.open(newline="") as lines:
        logged = [row["train_align_uniform_loss_step"] for row in csv.DictReader(lines)]
    assert len([loss for loss in logged if loss]) == 3


def test_pages_show_files_as_they_are():
    for page in PAGES:
        for block in blocks(page):
            if block.title:
                file = re.fullmatch(r'title="(.+)"', block.title)[1]
                assert block.text in (ROOT / file).read_text(), f"{page}: {file}"


def test_margins_by_the_quality_of_images(monkeypatch, tmp_path):
    """In our program, from a file of its own; a run's record has the method and its margins."""
    monkeypatch.chdir(tmp_path)
    quick = ["max_epochs=1", "limit_train_batches=2", "limit_val_batches=0", "data.num_workers=0"]
    arguments = [*quick, "scheduler.warmup_epochs=0", "accelerator=cpu", "margins.angular=0.3"]
    monkeypatch.setattr(sys, "argv", ["quality_adaptive_margin.py", *arguments])
    try:
        example = runpy.run_path(str(EXAMPLES / "quality_adaptive_margin.py"), run_name="__main__")
        method = example["QualityAdaptiveSimCLR"]
        assert METHODS["quality_adaptive_simclr"] is method
    finally:
        METHODS.pop("quality_adaptive_simclr", None)
    [record] = tmp_path.rglob("args.json")
    settings = json.loads(record.read_text())
    assert settings["method"] == "quality_adaptive_simclr"
    assert settings["method_kwargs"]["margins"]["angular"] == 0.3

    # The paper's formulas by hand: the longer a vector, the smaller m1 and the larger m2.
    model = method.__new__(method)
    torch.nn.Module.__init__(model)
    model.margins = Margins(angular=0.3)
    rows = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0], [0.0, 100.0]])
    margins = model.margins_for(rows)
    lengths = [1.0, 2.0, 3.0, 100.0]
    mean = statistics.mean(lengths)
    z = torch.tensor([(n - mean) / statistics.stdev(lengths) * 0.333 for n in lengths])
    torch.testing.assert_close(margins.angular, -0.3 * z, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(margins.subtractive, 0.3 * z + 0.3, rtol=1e-3, atol=1e-5)


def test_it_takes_lightlys_arguments_in_lightlys_places():
    lightly = pytest.importorskip("lightly.loss")
    theirs = inspect.signature(lightly.NTXentLoss).parameters
    ours = inspect.signature(MarginNTXentLoss).parameters
    assert list(ours)[: len(theirs)] == list(theirs)
    assert {name: ours[name].default for name in theirs} == {
        name: parameter.default for name, parameter in theirs.items()
    }
    for size in (0, (0,), (0, 128), [8, 4], (8, 4)):
        bank = lightly.NTXentLoss(0.5, size).memory_bank
        shape = tuple(bank.bank.shape) if bank.size[0] else None
        made = MarginNTXentLoss(0.5, size, True).bank
        assert (None if made is None else tuple(made.shape)) == shape


def test_margins_may_come_second():
    margins = Margins(positive_scale=2.0)
    loss = MarginNTXentLoss(0.3, margins)
    assert (loss.temperature, loss.margins, loss.bank) == (0.3, margins, None)
    assert repr(loss) == repr(MarginNTXentLoss(0.3, margins=margins))


@pytest.mark.parametrize("bank", [0, (32, 16)], ids=["simclr", "moco"])
def test_without_margins_it_is_lightlys_loss(bank):
    lightly = pytest.importorskip("lightly.loss")
    theirs = lightly.NTXentLoss(temperature=0.3, memory_bank_size=bank)
    ours = MarginNTXentLoss(temperature=0.3, memory_bank_size=bank)
    if bank:
        ours.bank.copy_(theirs.memory_bank.bank)
    generator = torch.Generator().manual_seed(0)
    for _ in range(6):  # the bank of four batches is overwritten
        z0, z1 = torch.randn(2, 8, 16, generator=generator)
        gradients = []
        for criterion in (theirs, ours):
            query, key = z0.clone().requires_grad_(), z1.clone().requires_grad_(not bank)
            loss = criterion(query, key)
            loss.backward()
            gradients.append((loss.detach(), query.grad, key.grad))
        for one, other in zip(*gradients, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    if bank:
        torch.testing.assert_close(ours.bank, theirs.memory_bank.bank)


def test_the_bank_remembers_the_newest_keys_and_is_saved():
    loss = MarginNTXentLoss(margins=Margins(positive_scale=2), memory_bank_size=(5, 3))
    keys = torch.nn.functional.normalize(torch.randn(9, 3), dim=1)
    for part in keys.split(3):
        loss(part.clone().requires_grad_(), 7 * part).backward()
    # Nine keys went round: the last five are left, the oldest at the position.
    assert loss.position == 4
    torch.testing.assert_close(loss.bank.roll(-4, dims=0), keys[-5:])
    kept = loss.bank.clone()
    loss(keys[:2], keys[:2])
    assert torch.equal(loss.bank, kept), "only a training step adds to it"
    restored = MarginNTXentLoss(memory_bank_size=(5, 3))
    restored.load_state_dict(loss.state_dict())
    assert torch.equal(restored.bank, kept)
    assert restored.position == 4


def test_more_keys_than_the_bank_holds():
    loss = MarginNTXentLoss(memory_bank_size=(4, 3))
    keys = torch.nn.functional.normalize(torch.randn(6, 3), dim=1)
    loss(keys.clone().requires_grad_(), keys)
    torch.testing.assert_close(loss.bank, keys[-4:])


@pytest.mark.parametrize("size", [7, -1, (4,), (4, 0), (4, 3, 2), (4.0, 3), "big", None])
def test_impossible_sizes_of_the_bank(size):
    with pytest.raises(ValueError, match=r"^memory_bank_size must be"):
        MarginNTXentLoss(memory_bank_size=size)


def test_vectors_of_another_width_than_the_banks():
    with pytest.raises(ValueError, match="memory bank"):
        MarginNTXentLoss(memory_bank_size=(8, 3))(torch.eye(4), torch.eye(4))
