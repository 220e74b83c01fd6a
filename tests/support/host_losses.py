"""solo-learn's own losses, each from its file alone."""

import importlib.util
from pathlib import Path

import pytest


def host_loss(name, function):
    """Return a loss of the host from its file alone, or skip the test.

    The package of the registry's form does not import on today's stack; its losses need only torch.
    """
    host = importlib.util.find_spec("solo")
    if host is None:
        pytest.skip("needs solo-learn")
    path = Path(host.origin).parent / f"losses/{name}.py"
    if not path.exists():
        pytest.skip(f"this form of solo-learn has no {name} loss")
    spec = importlib.util.spec_from_file_location(f"host_loss_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, function)
