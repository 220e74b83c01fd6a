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


def _modules_of_absent_packages():
    """Modules whose doctests cannot be collected, because what they import is not installed."""
    from solo_margins.host.detect import HostNotFoundError, form
    from solo_margins.registry import OUR_METHODS

    try:
        present = form()
    except HostNotFoundError:
        present = None
        for part in ("host", "data", "methods", "training", "evaluation"):
            yield f"tests/{part}/*"
        yield "solo_margins/methods/*"
        yield "solo_margins/training/*"
        yield "solo_margins/evaluation/*"
    places = {"main": "solo_main.py", "pypi": "solo_1_0_2/*"}
    for other in places.keys() - {present}:
        yield f"solo_margins/host/{places[other]}"
    if present == "pypi":
        # The registry's release is adapted for three methods.
        for method in OUR_METHODS.keys() - {"mocov3_margin", "simclr_margin", "byol_curv"}:
            yield f"solo_margins/methods/{method}.py"
    if not find_spec("nvidia") or not find_spec("nvidia.dali"):
        yield "solo_margins/host/solo_1_0_2/dali.py"


def pytest_addoption(parser):
    """Add ``--full`` and ``--device``."""
    parser.addoption("--full", action="store_true", help="run the tests that take long, too")
    parser.addoption(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="where losses, methods and views are tested (docs/gpu.md)",
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
    """Leave out what only ``--full`` runs."""
    if config.getoption("--full"):
        return
    long = [item for item in items if item.get_closest_marker("full")]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if not item.get_closest_marker("full")]


collect_ignore_glob = list(_modules_of_absent_packages())
