"""Imports flow one way, and losses know torch alone."""

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "solo_margins"
SOURCES = [path for path in sorted(PACKAGE.rglob("*.py")) if "configs" not in path.parts]
# From bottom to top: a part may import those of earlier lines, wherever in its files it does.
LAYERS = [
    ["config", "method_names", "ranks"],
    [
        "devices",
        "files",
        "losses",
        "recipes",
        "same_run",
        "versions",
    ],
    ["checkpoints", "learning_rates", "results", "scalings"],
    ["backbones"],
    ["solo_1_0_2"],
    ["registry"],
    ["data"],
    ["resolvers"],
    ["multirun"],
    ["cli"],
    ["command_line", "lens"],
    ["methods"],
    ["training"],
    ["evaluation"],
    ["export", "knn", "linear", "pretrain", "probe", "transfer"],
]
LEVELS = {part: level for level, parts in enumerate(LAYERS) for part in parts}
# The registry imports the methods inside of a function, and the release shares one module of data.
COMPOSED = {"registry": ("solo_margins.methods",)}
SHARED = ("solo_margins.data.image_statistics",)


def relative(path):
    return str(path.relative_to(PACKAGE))


def part_of(path):
    """Return the folder or the module at the top of the package that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(node):
    """Return the modules that a statement imports, and the names of modules that may be modules."""
    if isinstance(node, ast.Import):
        return [name.name for name in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute here"
        return [f"{node.module}.{name.name}" for name in node.names]
    return []


def imported_by(path):
    """Return every module that a file imports, anywhere in it."""
    return [name for node in ast.walk(ast.parse(path.read_text())) for name in imports_of(node)]


def imported_on_import(path):
    """Return the modules that a file imports as soon as it is imported itself."""
    waiting, found = [ast.parse(path.read_text())], []
    while waiting:
        node = waiting.pop()
        found += imports_of(node)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return found


def is_in(name, module):
    return name == module or name.startswith(f"{module}.")


def test_every_part_has_its_layer():
    assert sorted(LEVELS) == sorted({part_of(path) for path in SOURCES} - {"__init__"})
    assert imported_on_import(PACKAGE / "__init__.py") == []


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_layers_do_not_look_up(path):
    part = part_of(path)
    for name in imported_by(path):
        package, _, inside = name.partition(".")
        other = inside.partition(".")[0]
        # Other packages, and names of ours that are not modules, such as the version.
        if package != "solo_margins" or other not in LEVELS or other == part or part == "__init__":
            continue
        if any(is_in(name, module) for module in SHARED):
            continue
        if any(is_in(name, module) for module in COMPOSED.get(part, ())):
            assert name not in imported_on_import(path), f"{name} must be imported in a function"
            continue
        assert LEVELS[other] < LEVELS[part], f"{part} must not import {name}"


@pytest.mark.parametrize("path", sorted((PACKAGE / "losses").rglob("*.py")), ids=relative)
def test_losses_import_torch_alone(path):
    for name in imported_by(path):
        top = name.split(".")[0]
        assert (
            top == "torch" or top in sys.stdlib_module_names or is_in(name, "solo_margins.losses")
        ), name
