"""The built wheel and the editable install, in environments of their own."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from configparser import ConfigParser
from email import message_from_bytes
from importlib.metadata import distribution
from pathlib import Path

import pytest
import torch
from documented import blocks
from packaging.requirements import Requirement

import solo_margins
from solo_margins.lens import records
from solo_margins.versions import form, host_folder

ROOT = Path(__file__).resolve().parents[1]
SOURCES = (
    "solo_margins",
    "hydra_plugins",
    "configs",
    "setup.cfg",
    "pyproject.toml",
    "LICENSE",
    "README.md",
)

pytest.importorskip("setuptools")
pytest.importorskip("hydra")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of the sources, so that nothing is built among them."""
    folder = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=ignore)
        elif (ROOT / name).exists():
            shutil.copy(ROOT / name, folder / name)
    (folder / "README.md").touch()
    return folder


def environment(folder):
    """An empty environment that borrows the packages installed here, ours excepted."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    [own] = folder.glob("lib/python*/site-packages")
    (own / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python"


def bare_environment(folder, requirements, extra=""):
    """An environment that has nothing but links to these packages and to what they ask for."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    [own] = folder.glob("lib/python*/site-packages")
    for name in _closure(requirements, extra):
        files = distribution(name).files or ()
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            link = own / top
            if not link.is_symlink():  # several packages share a namespace such as nvidia
                link.symlink_to(distribution(name).locate_file(top))
    return folder / "bin" / "python"


def _closure(requirements, extra):
    found, waiting = set(), [(Requirement(text), {"", extra}) for text in requirements]
    while waiting:
        requirement, extras = waiting.pop()
        marker = requirement.marker
        if marker and not any(marker.evaluate({"extra": name}) for name in extras):
            continue
        name, asked = requirement.name, requirement.extras | {""}
        if (name, *sorted(asked)) not in found:
            found.add((name, *sorted(asked)))
            waiting += [(Requirement(text), asked) for text in distribution(name).requires or ()]
    return {name for name, *_ in found}


def clean(extra=None):
    """Environment variables that do not lead to this checkout."""
    return {"PYTHONPATH": "", "OMP_NUM_THREADS": "1", **(extra or {})}


OPTIONS = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index"]


def run(*command, folder):
    variables = {**os.environ, **clean()}
    subprocess.run([str(part) for part in command], check=True, env=variables, cwd=folder)


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory):
    """The wheel that is built from the sources."""
    folder = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "pip", "wheel", *OPTIONS, "-w", folder, source, folder=folder)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module", params=["wheel", pytest.param("editable", marks=pytest.mark.full)])
def installed(request, source, tmp_path_factory):
    """Python of an environment with this package installed."""
    folder = tmp_path_factory.mktemp(request.param)
    executable = environment(folder / "env")
    target = [request.getfixturevalue("wheel")] if request.param == "wheel" else ["-e", source]
    run(executable, "-m", "pip", "install", *OPTIONS, *target, folder=folder)
    return executable


def contents(wheel):
    """Files of a wheel, by their names, without those that say how it was made."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name
        }


def described(wheel, name):
    """A file of the part of a wheel that says what it is."""
    with zipfile.ZipFile(wheel) as archive:
        [found] = [one for one in archive.namelist() if one.endswith(f".dist-info/{name}")]
        return archive.read(found)


def test_the_wheel_has_the_package_and_nothing_else(wheel):
    expected = {
        str(file.relative_to(ROOT))
        for top in ("solo_margins", "hydra_plugins")
        # os.walk goes through the link to the configurations, Path.rglob would not.
        for folder, _, files in os.walk(ROOT / top, followlinks=True)
        for file in (Path(folder) / name for name in files)
        if file.suffix in (".py", ".pyi", ".yaml", ".html", ".md", ".txt", ".typed")
    }
    assert "solo_margins/configs/data/digits.yaml" in expected
    assert contents(wheel).keys() == expected
    assert wheel.stat().st_size < 500_000
    assert described(wheel, "licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    metadata = message_from_bytes(described(wheel, "METADATA"))
    entry_points = ConfigParser(delimiters="=")
    entry_points.read_string(described(wheel, "entry_points.txt").decode())
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Version"] == solo_margins.__version__
    assert set(entry_points["hydra.plugins"].values()) == {
        "hydra_plugins.solo_margins_searchpath:SoloMarginsSearchPathPlugin",
    }


@pytest.mark.full
def test_the_source_distribution_is_the_repository(wheel, tmp_path):
    pytest.importorskip("build")
    left_out = shutil.ignore_patterns(".*", "__pycache__", "trained_models", "outputs", "dist")
    shutil.copytree(ROOT, tmp_path / "repository", symlinks=True, ignore=left_out)
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path / "dist"]
    run(*build, tmp_path / "repository", folder=tmp_path)
    [archive] = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        held = {name.partition("/")[2] for name in opened.getnames()}
    repository = tmp_path / "repository"
    for file in (file for file in repository.rglob("*") if file.is_file()):
        name = str(file.relative_to(repository))
        # The configurations are held once, where the package has its link to them.
        name = f"solo_margins/{name}" if name.startswith("configs/") else name
        assert name in held or ".egg-info" in name or name.startswith("build/"), name
    [rebuilt] = (tmp_path / "dist").glob("*.whl")
    assert contents(rebuilt) == contents(wheel)


APPLICATION = """
import sys
{imports}
import hydra

@hydra.main(version_base=None, config_path=None, config_name={name!r})
def main(cfg):
    print(cfg.method, "torch" in sys.modules)

main()
"""


# Hydra before 1.4 does not look at entry points.
AS_HYDRA_1_4 = """
import solo_margins
from importlib.metadata import entry_points
from hydra.core.plugins import Plugins

found = entry_points(group="hydra.plugins")
assert "solo_margins_searchpath" in found.names
for entry_point in found:
    Plugins.instance().register(entry_point.load())
"""


def test_a_plugin_that_is_found_in_both_ways_adds_our_configurations_once(
    installed, python, tmp_path
):
    program = tmp_path / "application.py"
    program.write_text(APPLICATION.format(imports=AS_HYDRA_1_4, name=None))
    searched = python(program, "--info", "searchpath", executable=installed, env=clean())
    assert searched.count("pkg://solo_margins.configs") == 1


def test_our_configurations_are_found_from_a_foreign_folder(installed, python, tmp_path):
    program = tmp_path / "application.py"
    text = APPLICATION.format(imports="import solo_margins", name="mocov3_margin")
    program.write_text(text)
    out = python(program, executable=installed, env=clean())
    assert out.splitlines()[-1] == "mocov3_margin False"


def shown_python(page, text):
    """The one piece of Python of a page that has a text in it."""
    [block] = [b for b in blocks(ROOT / page) if b.language == "python" and text in b.text]
    return block.text


def install_from_nothing(executable, target, folder):
    """Install a wheel where no other package can be had, which fails unless all are there."""
    pip = [sys.executable, "-m", "pip", "--python", executable, "install", "--quiet"]
    run(*pip, "--no-index", target, folder=folder)


def test_the_wheel_beside_torch_alone_gives_the_losses(wheel, python, tmp_path):
    executable = bare_environment(tmp_path / "env", ["torch"])
    install_from_nothing(executable, wheel, tmp_path)
    program = shown_python("README.md", "MarginNTXentLoss")
    program += """
import importlib.util

assert z0.grad.norm() > 0
assert importlib.util.find_spec("hydra") is None
"""
    python("-W", "ignore", "-c", program, executable=executable, env=clean())


@pytest.mark.full
def test_the_wheel_with_the_extra_trains_without_a_checkout(wheel, python, tmp_path):
    requirements = message_from_bytes(described(wheel, "METADATA")).get_all("Requires-Dist")
    executable = bare_environment(tmp_path / "env", requirements, extra="train")
    install_from_nothing(executable, f"{wheel}[train]", tmp_path)
    if form() == "pypi":  # as pip install --no-deps solo-learn==1.0.2 does
        [own] = (tmp_path / "env").glob("lib/python*/site-packages")
        (own / "solo").symlink_to(host_folder())
    python(
        *("-W", "ignore", "-m", "solo_margins.pretrain", "--config-name", "mocov3_margin.yaml"),
        *("backbone=narrow_resnet10", "optimizer.batch_size=8", "data.num_workers=0"),
        *("accelerator=cpu", "max_epochs=1", "limit_train_batches=2", "limit_val_batches=1"),
        "scheduler.warmup_epochs=0",
        executable=executable,
        env={
            **clean({"PYTHONPATH": "" if form() == "pypi" else str(checkout())}),
            "SOLO_MARGINS_CACHE": str(tmp_path / "cache"),
        },
    )
    [checkpoint] = (tmp_path / "trained_models").rglob("*.ckpt")
    assert torch.load(checkpoint, weights_only=True)["global_step"] == 2


def checkout():
    """Folder of the untouched programs of solo-learn's repository."""
    return host_folder().parent


needs_programs = pytest.mark.skipif(
    not (checkout() / "main_pretrain.py").exists(), reason="the installed host has no programs"
)


@needs_programs
def test_the_untouched_program_of_solo_learn_trains_our_method(
    installed, python, image_folder, tmp_path
):
    arguments = [
        checkout() / "main_pretrain.py",
        "--config-name",
        "mocov3_margin.yaml",
        "data=folder",
        "image.size=16",
        "backbone.name=narrow_resnet10",
        f"data.train_path={image_folder / 'train'}",
        f"data.val_path={image_folder / 'val'}",
        "data.num_workers=0",
        "method_kwargs.proj_hidden_dim=16",
        "method_kwargs.pred_hidden_dim=16",
        "optimizer.batch_size=4",
        "accelerator=cpu",
        "max_epochs=1",
        "scheduler.warmup_epochs=0",
        "knn_eval.enabled=true",
        "lens.enabled=true",
        "lens.every=1",
        f"checkpoint.dir={tmp_path / 'runs'}",
        "limit_train_batches=2",
    ]
    python("-W", "ignore", *arguments, executable=installed, env=clean())
    [checkpoint] = (tmp_path / "runs" / "mocov3_margin").rglob("*.ckpt")
    args = json.loads((checkpoint.parent / "args.json").read_text())
    assert args["method"] == "mocov3_margin"
    assert len(records.read(checkpoint.parent).observations) == 2
