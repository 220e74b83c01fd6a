"""Puts our methods, with everything that belongs to them, into a checkout."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from solo_margins.host import OTHER_METHODS
from solo_margins.host.backbones import LIKE_MOCOV3
from solo_margins.registry import OUR_METHODS
from solo_margins.upstream import host_files, pages
from solo_margins.upstream.checkout import Checkout, UpstreamError
from solo_margins.upstream.layout import SHARED, file_of, loss_functions, place_of, tree_of
from solo_margins.upstream.modules import exported, needed_modules, replaced_losses
from solo_margins.upstream.python_text import imported_names
from solo_margins.upstream.recipe_files import add_recipes
from solo_margins.upstream.test_files import loss_test, method_test, test_path

METHODS_FILE = "solo/methods/__init__.py"
LOSSES_FILE = "solo/losses/__init__.py"
VITS_FILE = "solo/backbones/vit/__init__.py"


def add_methods(checkout: Checkout, names: Sequence[str]) -> None:
    """Add methods, the losses and parts that they need, recipes, documentation and tests.

    Raises:
        UpstreamError: a method is unknown, or the checkout has no place for it.
    """
    for name in names:
        if name not in OUR_METHODS:
            raise UpstreamError(
                f"--method {name} is none of ours, which are {', '.join(sorted(OUR_METHODS))}."
            )
    places = _host_places(checkout)
    targets = {name: OUR_METHODS[name].split(":") for name in names}
    modules = needed_modules(module for module, _ in targets.values())
    for module in modules:
        put_python(checkout, file_of(place_of(module)), exported(module, places))
        if loss_functions(module):
            _add_loss(checkout, module)
    if modules:
        package = f'from {SHARED}.margins import Margins\n\n__all__ = ["Margins"]\n'
        put_python(checkout, file_of(f"{SHARED}.__init__"), package)
    for name, (module, class_name) in targets.items():
        _add_method(checkout, name, module, class_name, places)


def put_python(checkout: Checkout, path: object, text: str) -> None:
    """Give a new Python file its content below solo-learn's licence."""
    checkout.put(str(path), f"{licence_header(checkout)}\n{text.rstrip()}\n")


def licence_header(checkout: Checkout) -> str:
    """Return the licence as the files of this checkout begin with it."""
    lines = checkout.read(METHODS_FILE).splitlines()
    end = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    header = "\n".join(lines[:end]).rstrip() + "\n"
    if "Copyright" not in header:
        raise UpstreamError(f"{METHODS_FILE} does not begin with solo-learn's licence.")
    return header


def _host_places(checkout: Checkout) -> dict[str, str]:
    """Return which module of solo-learn defines the names that our methods use."""
    contract = tree_of("solo_margins.host.main_form.contract")
    found = {name: module for module, name, _ in imported_names(contract)}
    methods = imported_names(ast.parse(checkout.read(METHODS_FILE)))
    return {**found, **{name: module for module, name, _ in methods}}


def _add_loss(checkout: Checkout, module: str) -> None:
    place = place_of(module)
    text = checkout.read(LOSSES_FILE)
    for function in loss_functions(module):
        text = host_files.with_import(text, place, function)
        text = host_files.with_entry(text, "__all__", function)
    checkout.put(LOSSES_FILE, text)
    put_python(checkout, test_path(module), loss_test(checkout, module))
    pages.add_loss_page(checkout, module)


def _add_method(
    checkout: Checkout, name: str, module: str, class_name: str, places: dict[str, str]
) -> None:
    parent_class = _parent_of(module, class_name)
    if parent_class not in places:
        raise UpstreamError(
            f"{checkout.folder} has no method {parent_class}, which {name} extends."
        )
    parent_module = places[parent_class]
    parent = OTHER_METHODS.get(parent_class, parent_module.rpartition(".")[2])

    file = file_of(parent_module)
    text = checkout.read(file)
    for loss in replaced_losses(module):
        try:
            text = host_files.with_loss_as_member(text, parent_class, loss)
        except ValueError as reason:
            raise UpstreamError(f"{file} cannot be extended: {reason}") from None
    checkout.put(file, text)

    registry = checkout.read(METHODS_FILE)
    registry = host_files.with_import(registry, place_of(module), class_name)
    registry = host_files.with_entry(registry, "METHODS", name, class_name)
    checkout.put(METHODS_FILE, host_files.with_entry(registry, "__all__", class_name))
    if name in LIKE_MOCOV3:
        vits = host_files.with_vit_like(checkout.read(VITS_FILE), name, "mocov3")
        checkout.put(VITS_FILE, vits)

    add_recipes(checkout, name, parent)
    pages.add_method_page(checkout, module, class_name, parent)
    test = method_test(checkout, name, class_name, parent, parent_class)
    put_python(checkout, test_path(module), test)


def _parent_of(module: str, class_name: str) -> str:
    """Return the class of solo-learn that a method of ours derives from."""
    for node in tree_of(module).body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            for base in node.bases:
                if isinstance(base, ast.Attribute):
                    return base.attr
    raise UpstreamError(f"{module}.{class_name} derives from no method of solo-learn.")
