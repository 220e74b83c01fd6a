"""setup.cfg names what is imported, and allows what the lock file and the oldest versions pin."""

import ast
import configparser
import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import solo_margins

ROOT = Path(__file__).resolve().parents[1]
# Modules whose names are not those of the distributions that bring them.
DISTRIBUTIONS = {
    "griffe": "griffelib",
    "hydra": "hydra-core",
    "lightning_utilities": "lightning",  # which depends on it
    "nbformat": "nbclient",  # which depends on it
    "nvidia": "nvidia-dali-cuda130",
    "PIL": "pillow",
    "pytorch_lightning": "lightning",  # which depends on it
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
# The host comes from a checkout, or without its pins of 2021: no requirement can say that.
HOST = "solo"


def parsed():
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def lines(text):
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def requirements(*extras):
    """What an installation with these extras asks for."""
    parser = parsed()
    wanted = [parser["options"]["install_requires"]]
    wanted += [parser["options.extras_require"][extra] for extra in extras]
    return [Requirement(line) for group in wanted for line in lines(group)]


def names(*extras):
    return {canonicalize_name(requirement.name) for requirement in requirements(*extras)}


def foreign_imports(*places):
    """Distributions that the Python files in these places import, with one file for each."""
    found = {}
    files = [file for place in places for file in sorted(ROOT.glob(place))]
    folders = ("tests/support", "examples", "scripts")
    beside = [file for folder in folders for file in ROOT.glob(f"{folder}/*.py")]
    # A folder of scripts is a package for the script that it belongs to.
    ours = {file.stem for file in beside} | {"solo_margins", "hydra_plugins"}
    ours |= {"reproduce", HOST}
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                modules = [name.name for name in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [node.module]
            else:
                continue
            for module in modules:
                top = module.partition(".")[0]
                is_beside = (file.parent / f"{top}.py").exists()
                if not is_beside and top not in ours and top not in sys.stdlib_module_names:
                    name = canonicalize_name(DISTRIBUTIONS.get(top, top))
                    found.setdefault(name, file.relative_to(ROOT))
    assert found, places
    return found


# It brings some forty packages more; the example says how to install it.
OF_ONE_EXAMPLE = {"stable-pretraining"}


@pytest.mark.parametrize(
    ("place", "extras"),
    [
        ("solo_margins/losses/*.py", []),
        ("solo_margins/data/*.py", ["train", "dali"]),
        ("solo_margins/evaluation/*.py", ["train"]),
        ("solo_margins/methods/*.py", ["train"]),
        ("solo_margins/training/*.py", ["train"]),
        ("solo_margins/*.py", ["train"]),
        ("hydra_plugins/*.py", ["train"]),
        ("*.py", ["train", "dev"]),
        ("solo_margins/lens/*.py", ["train", "lens", "loggers"]),
        ("solo_margins/solo_1_0_2/**/*.py", ["train", "dali"]),
        ("examples/*.py", ["train", "bench"]),
        ("scripts/*.py", ["train", "bench", "notebook", "dev"]),
        ("scripts/reproduce/*.py", ["train", "lens", "dev"]),
        ("tests/**/*.py", ["train", "lens", "bench", "notebook", "dev"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "+".join(value) or "none",
)
def test_extras_name_what_is_imported(place, extras):
    missing = {
        name: str(file)
        for name, file in foreign_imports(place).items()
        if name not in names(*extras) | OF_ONE_EXAMPLE
    }
    assert not missing


def pins(file):
    found = [Requirement(line) for line in lines((ROOT / file).read_text())]
    return {canonicalize_name(pin.name): re.sub("^==", "", str(pin.specifier)) for pin in found}


# Left to those who need them: another generation of CUDA, other machines, services.
NOT_LOCKED = {
    "nvidia-dali-cuda120",
    "hydra-submitit-launcher",
    "hydra-ray-launcher",
    "tensorboard",
    "wandb",
    "pre-commit",
    "setuptools",  # scripts/environment.sh pins it
}


def test_the_lock_file_has_what_setup_cfg_asks_for():
    locked = pins("requirements.lock")
    # Whatever builds the documentation has a lock file of its own.
    every = [extra for extra in parsed()["options.extras_require"] if extra != "docs"]
    assert names(*every) - set(locked) == NOT_LOCKED
    outside = [
        f"{requirement}: {locked[name]}"
        for requirement in requirements(*every)
        if (name := canonicalize_name(requirement.name)) in locked
        and not requirement.specifier.contains(locked[name])
    ]
    assert not outside


def test_the_lock_file_of_the_documentation_agrees():
    locked = pins("requirements-docs.lock")
    # Docstrings are read without importing anything, so torch is not among them.
    for requirement in set(requirements("docs")) - set(requirements()):
        assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)])
    both = set(locked) & set(pins("requirements.lock"))
    assert all(locked[name] == pins("requirements.lock")[name] for name in both)


def test_the_oldest_versions_are_the_lower_ends_of_the_ranges():
    lowest = pins("requirements-lowest.txt")
    # Lightning's older name, which solo-learn 1.0.2 imports, comes with lightning.
    assert lowest.pop("pytorch-lightning") == lowest["lightning"]
    assert set(lowest) == names("train")
    for requirement in requirements("train"):
        [bound] = [one for one in requirement.specifier if one.operator == ">="]
        # 1.24 is tested as 1.24.4, never as 1.25.
        pinned = lowest[canonicalize_name(requirement.name)]
        assert (pinned + ".").startswith(bound.version + "."), requirement


def test_one_version_everywhere():
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^version: (.*)$", citation, re.MULTILINE)[1] == solo_margins.__version__
    assert parsed()["metadata"]["version"] == "attr: solo_margins.__version__"
