"""Where a module of ours belongs in solo-learn, and what of it stays here."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

from solo_margins.upstream.python_text import find_definition, imported_names

PACKAGE = Path(__file__).resolve().parent.parent
SHARED = "solo.utils.margins"
"""What several losses and methods need, as a package of solo-learn."""

SETTINGS_OF_METHODS = ("schedules", "settings")
"""Modules among our methods that hold none."""

STAYS_HERE = (
    "solo_margins.lens",
    "solo_margins.numerics",
    "solo_margins.losses.capture",
    "solo_margins.host.training_step",
    "solo_margins.methods.variants",
)
"""Modules about our own recipes, or that watch a training or reach into solo-learn from outside."""

MEMBERS_THAT_STAY = (
    "configure_callbacks",
    "on_fit_end",
    "parent_method",
    "negatives_are_of_the_batch",
)
"""Members of a method that serve those modules, or a program of ours."""


@functools.cache
def source_of(module: str) -> str:
    """Return the text of one of our modules."""
    path = PACKAGE.joinpath(*module.split(".")[1:])
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return file.read_text()


@functools.cache
def tree_of(module: str) -> ast.Module:
    """Return the syntax tree of one of our modules."""
    return ast.parse(source_of(module))


def is_ours(module: str) -> bool:
    """Tell whether a name is that of a module of this package."""
    path = PACKAGE.joinpath(*module.split(".")[1:])
    is_inside = module.split(".")[0] == PACKAGE.name
    return is_inside and (path.is_dir() or path.with_suffix(".py").is_file())


def stays_here(module: str) -> bool:
    """Tell whether a module of ours has no place in solo-learn."""
    return any(module == root or module.startswith(f"{root}.") for root in STAYS_HERE)


def defining_module(module: str, name: str) -> str:
    """Return which of our modules defines what a package of ours gives out under a name."""
    tree = tree_of(module)
    if find_definition(tree, name) is None:
        for source, given, alias in imported_names(tree):
            if (alias or given) == name and is_ours(source):
                return defining_module(source, given)
    return module


def loss_functions(module: str) -> list[str]:
    """Return the public loss functions that a module of ours defines."""
    functions = [node for node in tree_of(module).body if isinstance(node, ast.FunctionDef)]
    return [f.name for f in functions if f.name.endswith("_loss_func")]


def place_of(module: str) -> str:
    """Return what a module of ours is called in solo-learn.

    Example:
        >>> place_of("solo_margins.losses.mocov3")
        'solo.losses.mocov3_margin'
        >>> place_of("solo_margins.losses._contrast")
        'solo.utils.margins.contrast'
        >>> place_of("solo_margins.methods.simclr_margin")
        'solo.methods.simclr_margin'
    """
    _, area, *inner = module.split(".")
    name = inner[-1].lstrip("_")
    if area == "losses":
        functions = loss_functions(module)
        if functions:
            return f"solo.losses.{functions[0].removesuffix('_loss_func')}"
        return f"{SHARED}.{name}"
    if area == "methods":
        return f"{SHARED}.{name}" if name in SETTINGS_OF_METHODS else f"solo.methods.{name}"
    return f"solo.utils.{name}"


def file_of(place: str) -> Path:
    """Return the file of a module of solo-learn, from the top of its checkout."""
    return Path(*place.split(".")).with_suffix(".py")
