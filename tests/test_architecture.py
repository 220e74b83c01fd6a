"""Imports flow one way: losses know torch alone, and only the host layer knows solo-learn."""

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "solo_margins"
SOURCES = sorted(PACKAGE.rglob("*.py"))
# Later parts may use earlier ones, never the other way round.
LAYERS = [
    "losses",
    "host",
    "lens",
    "methods",
    "runner",
    "evaluation",
]


def imported_by(path):
    """Return every module that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_host_layer_imports_the_host(path):
    if path.relative_to(PACKAGE).parts[0] != "host":
        assert not [name for name in imported_by(path) if name.split(".")[0] == "solo"]


@pytest.mark.parametrize("path", sorted((PACKAGE / "losses").rglob("*.py")), ids=lambda p: p.name)
def test_losses_import_torch_alone(path):
    for name in imported_by(path):
        top = name.split(".")[0]
        assert (
            top == "torch"
            or top in sys.stdlib_module_names
            or name.startswith("solo_margins.losses")
        ), name


@pytest.mark.parametrize("place", range(len(LAYERS)), ids=LAYERS)
def test_layers_do_not_look_up(place):
    later = tuple(f"solo_margins.{layer}" for layer in LAYERS[place + 1 :])
    for path in (PACKAGE / LAYERS[place]).rglob("*.py"):
        if path.name == "__main__.py":  # a program stands above all layers
            continue
        assert not [name for name in imported_by(path) if name.startswith(later)], path
