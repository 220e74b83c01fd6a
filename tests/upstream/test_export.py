"""The export as a maintainer of solo-learn runs it, on a copy of a real checkout."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import export_upstream
import pytest
import torch
import yaml

from solo_margins.registry import METHOD_NAMES
from solo_margins.versions import host_folder

pytestmark = pytest.mark.repository

ROOT = Path(__file__).resolve().parents[2]
MOST_FILES = 8

# Puts a stop to any import of this package, then runs what it is told.
WITHOUT_US = """
import runpy
import sys

sys.modules["solo_margins"] = None
_, module, *sys.argv = sys.argv
if module == "pytest":
    import pytest

    sys.exit(pytest.main(sys.argv))
sys.path[0] = "."
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def checkout(tmp_path):
    """Return a copy of the checkout that the tests run against."""
    original = host_folder().parent
    if not (original / "main_pretrain.py").is_file():
        pytest.skip("this needs a checkout of solo-learn's repository: set SOLO_LEARN_SRC")
    left_out = shutil.ignore_patterns(".git", "__pycache__", "docs", "lightning_logs", "datasets")
    return shutil.copytree(original, tmp_path / "solo-learn", ignore=left_out)


def contents(folder):
    """Return the content of all files below a folder, by path."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def export(folder, method):
    """Export a method and return the exit code."""
    return export_upstream.main([str(folder), "--method", method])


def without_us(python, checkout, *arguments):
    """Run pytest or a program of the copy where this package cannot be imported."""
    env = {"PYTHONPATH": str(checkout), "SOLO_MARGINS_DISABLE": "1"}
    return python("-c", WITHOUT_US, *arguments, cwd=checkout, timeout=900, env=env)


def own_tests(*methods):
    return [f"tests/methods/test_{method}.py" for method in methods]


def test_one_method_is_at_most_eight_files_and_its_tests_pass(checkout, python):
    before = contents(checkout)
    printed = python(ROOT / "scripts/export_upstream.py", checkout, "--method", "mocov3_margin")
    after = contents(checkout)
    assert before.keys() <= after.keys()
    written = {path for path in after if after[path] != before.get(path)}
    assert written == set(printed.split())
    assert len(written) <= MOST_FILES
    # What is changed has lines added, and loses none.
    for path in written & before.keys():
        lines = after[path].splitlines()
        assert [line for line in lines if line in before[path].splitlines()] == before[
            path
        ].splitlines()
    without_us(
        python, checkout, "pytest", "-q", "-p", "no:cacheprovider", *own_tests("mocov3_margin")
    )


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_every_method_is_offered_and_readable_without_us(method, checkout):
    before = contents(checkout)
    assert export(checkout, method) == 0
    after = contents(checkout)
    written = [path for path in after if after[path] != before.get(path)]
    assert len(written) <= MOST_FILES
    for path in written:
        text = after[path].decode()
        assert "solo_margins" not in text
        assert all(len(line) <= 100 for line in text.splitlines()), path
        if path.endswith(".py"):
            assert text.startswith("# Copyright"), path
    # Nothing is undefined or imported in vain.
    python_files = [path for path in written if path.endswith(".py")]
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select=E9,F"]
    checked = subprocess.run(
        [*command, *python_files], cwd=checkout, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout


@pytest.mark.full
def test_all_methods_fit_beside_each_other(checkout, python):
    for method in METHOD_NAMES:
        assert export(checkout, method) == 0
    without_us(
        python, checkout, "pytest", "-q", "-p", "no:cacheprovider", *own_tests(*METHOD_NAMES)
    )


def train(python, program, checkout, folder, images, env, *before):
    """Train two steps by a recipe of the copy and return the weights."""
    python(
        *before,
        program,
        "--config-path",
        checkout / "scripts/pretrain/cifar",
        "--config-name",
        "mocov3_margin.yaml",
        "data.dataset=custom",
        f"data.train_path={images / 'train'}",
        "data.val_path=null",
        "data.num_workers=0",
        "optimizer.batch_size=8",
        # Rates of solo-learn's warm-up differ from ours.
        "scheduler.name=none",
        f"checkpoint.dir={folder}",
        "wandb.enabled=False",
        "accelerator=cpu",
        "devices='1'",
        "strategy=auto",
        "sync_batchnorm=False",
        # In float64 the plain form of the loss and the engine do not drift apart.
        "precision=64-true",
        "max_epochs=1",
        "++limit_train_batches=2",
        "++seed=3",
        "++performance.disable_channel_last=True",
        cwd=checkout,
        timeout=600,
        env=env,
    )
    (checkpoint,) = folder.rglob("*.ckpt")
    content = torch.load(checkpoint, weights_only=False)
    assert content["global_step"] == 2
    return content["state_dict"]


def test_two_steps_of_the_copy_are_those_of_this_package(checkout, image_folder, python, tmp_path):
    assert export(checkout, "mocov3_margin") == 0
    own_folder = host_folder().parent
    recipe = checkout / "scripts/pretrain/cifar/mocov3_margin.yaml"
    settings = yaml.safe_load(recipe.read_text())
    assert settings["method_kwargs"]["margins"]
    # The copy hands every key on.
    assert settings["optimizer"]["kwargs"] == {"momentum": 0.9}
    theirs = train(
        python,
        "main_pretrain.py",
        checkout,
        tmp_path / "theirs",
        image_folder,
        {"PYTHONPATH": str(checkout), "SOLO_MARGINS_DISABLE": "1"},
        *("-c", WITHOUT_US, "program"),
    )
    ours = train(
        python,
        own_folder / "main_pretrain.py",
        checkout,
        tmp_path / "ours",
        image_folder,
        {"PYTHONPATH": f"{own_folder}{os.pathsep}{ROOT}"},
    )
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        torch.testing.assert_close(theirs[name], value, rtol=1e-9, atol=1e-9, msg=name)


def test_what_is_refused_is_left_as_it_was(checkout, tmp_path, capsys):
    empty = tmp_path / "empty"
    empty.mkdir()
    assert export(empty, "mocov3_margin") == 1
    assert not contents(empty)

    assert export(checkout, "mocov3_margin") == 0
    before = contents(checkout)
    capsys.readouterr()
    assert export(checkout, "mocov3_margin") == 1
    assert contents(checkout) == before

    # A file that the methods share was edited: another method would overwrite it.
    shared = checkout / "solo/losses/margins.py"
    shared.write_text(shared.read_text() + "EDITED = True\n")
    before = contents(checkout)
    assert export(checkout, "byol_curv") == 1
    assert contents(checkout) == before
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 2
    assert "mocov3_margin" in said[0]
    assert "solo/losses/margins.py" in said[1]


def test_where_a_file_cannot_be_written_none_is(checkout, capsys):
    recipes = checkout / "scripts/pretrain/cifar"
    shutil.rmtree(recipes)
    recipes.write_text("not a folder")
    before = contents(checkout)
    assert export(checkout, "mocov3_margin") == 1
    assert contents(checkout) == before
    assert "cannot be written" in capsys.readouterr().err
