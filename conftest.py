"""Options and paths of the suite.

This checkout, and solo-learn's if ``SOLO_LEARN_SRC`` names one, come first on the path.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent
first = [str(ROOT)]
if os.environ.get("SOLO_LEARN_SRC"):
    first.insert(0, str(Path(os.environ["SOLO_LEARN_SRC"]).resolve()))
sys.path[:] = [*first, *(folder for folder in sys.path if folder not in first)]
inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*first, *filter(None, inherited)]))


from solo_margins import registry  # noqa: E402
from solo_margins.versions import HostNotFoundError, form  # noqa: E402

try:
    FORM = form()
except HostNotFoundError:
    FORM = None
else:
    # Tests import solo-learn by its repository's paths, with either solo-learn.
    registry.register()

# Methods of ours that the installed solo-learn has no parent for.
ABSENT_METHODS = set()
if FORM == "pypi":
    ABSENT_METHODS = set(registry.METHOD_NAMES) - {"mocov3_margin", "simclr_margin", "byol_curv"}


def _modules_of_absent_packages():
    """Modules that cannot be collected, because what they import is not installed."""
    if FORM is None:
        for part in ("data", "methods", "training", "evaluation"):
            yield f"tests/{part}/*"
        yield "tests/test_registry.py"
        yield "solo_margins/methods/*"
        yield "solo_margins/training/*"
        yield "solo_margins/evaluation/*"
    if FORM != "pypi":
        yield "tests/solo_1_0_2/*"
        yield "solo_margins/solo_1_0_2/*"
    for method in ABSENT_METHODS:
        yield f"solo_margins/methods/{method}.py"
    if not find_spec("nvidia") or not find_spec("nvidia.dali"):
        yield "solo_margins/solo_1_0_2/data/dali_dataloader.py"


def _applies(item):
    """Tell whether a test applies to the installed solo-learn."""
    if FORM != "main" and "repository" in item.keywords:
        return False
    if FORM != "pypi" and "release" in item.keywords:
        return False
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return not any(isinstance(value, str) and value in ABSENT_METHODS for value in parameters)


def pytest_addoption(parser):
    """Add ``--full`` and ``--device``."""
    parser.addoption("--full", action="store_true", help="run the tests that take long, too")
    parser.addoption(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="where losses, methods and views are tested (docs/development/gpu.md)",
    )


def pytest_configure(config):
    """Refuse ``--device cuda`` on a machine without a GPU."""
    if config.getoption("--device") == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise pytest.UsageError("--device cuda needs a GPU, and PyTorch sees none.")


def pytest_ignore_collect(collection_path, config):
    """Collect what needs a GPU with ``--device cuda`` alone."""
    is_for_gpus = collection_path == ROOT / "tests" / "test_gpu.py"
    if is_for_gpus and config.getoption("--device") == "cpu":
        return True
    return None


def pytest_collection_modifyitems(config, items):
    """Leave out what does not apply to the installed solo-learn, and what only ``--full`` runs."""
    left_out = [item for item in items if not _applies(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _applies(item)]
    if config.getoption("--full"):
        return
    long = [item for item in items if item.get_closest_marker("full")]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if not item.get_closest_marker("full")]


collect_ignore_glob = list(_modules_of_absent_packages())
