"""Puts our methods, with everything that belongs to them, into a checkout."""

from __future__ import annotations

import re
from collections.abc import Sequence

from solo_margins.registry import OUR_METHODS
from upstream import generated_tests
from upstream.checkout import Checkout, UpstreamError
from upstream.recipes import add_recipes
from upstream.source import (
    SHARED,
    exported,
    file_of,
    import_line,
    imports_of,
    loss_functions,
    needed_modules,
    place_of,
    template,
    text_of,
)

METHODS_FILE = "solo/methods/__init__.py"
LOSSES_FILE = "solo/losses/__init__.py"
VITS_FILE = "solo/backbones/vit/__init__.py"


def add_methods(checkout: Checkout, names: Sequence[str]) -> None:
    """Add methods, the losses and parts that they need, recipes and tests.

    Raises:
        UpstreamError: a method is unknown, or the checkout has no place for it.
    """
    for name in names:
        if name not in OUR_METHODS:
            raise UpstreamError(
                f"--method {name} is not one of ours, which are {', '.join(sorted(OUR_METHODS))}."
            )
    places = _host_places(checkout)
    modules = needed_modules(OUR_METHODS[name].split(":")[0] for name in names)
    for module in modules:
        put_python(checkout, file_of(place_of(module)), exported(module, places))
        for function in loss_functions(module):
            text = with_import(checkout.read(LOSSES_FILE), place_of(module), function)
            checkout.put(LOSSES_FILE, with_entry(text, "__all__ = [", f'"{function}"'))
            test = generated_tests.loss_test(function)
            put_python(checkout, f"tests/losses/test_{function.removesuffix('_func')}.py", test)
    if modules:
        put_python(checkout, file_of(f"{SHARED}.__init__"), template("margins_package"))
    for name in names:
        _add_method(checkout, name, places)


def _add_method(checkout: Checkout, name: str, places: dict[str, str]) -> None:
    module, class_name = OUR_METHODS[name].split(":")
    [parent_class] = set(re.findall(r"super\(host\.(\w+), self\)", text_of(module)))
    if parent_class not in places:
        raise UpstreamError(
            f"{checkout.folder} has no method {parent_class}, which {name} extends."
        )
    parent = places[parent_class].rpartition(".")[2]
    text = with_import(checkout.read(METHODS_FILE), place_of(module), class_name)
    text = with_entry(text, "METHODS = {", f'"{name}": {class_name}')
    checkout.put(METHODS_FILE, with_entry(text, "__all__ = [", f'"{class_name}"'))
    if parent == "mocov3":
        checkout.put(VITS_FILE, _with_vit_of_parent(checkout.read(VITS_FILE)))
    add_recipes(checkout, name, parent)
    test = generated_tests.method_test(name, class_name, parent, parent_class)
    put_python(checkout, f"tests/methods/test_{name}.py", test)


def _with_vit_of_parent(text: str) -> str:
    """Return solo-learn's module of ViTs, which chooses MoCo v3's variant by the method's name."""
    head = "def get_constructor(method, options, default):\n"
    added = (
        "    # a method with margins has the ViT of its parent\n"
        '    method = str(method).lower().replace("_margin", "")\n'
    )
    if head not in text:
        raise UpstreamError(f"{VITS_FILE} has no {head.strip()}")
    return text if added in text else text.replace(head, head + added)


def put_python(checkout: Checkout, path: str, text: str) -> None:
    """Give a new Python file its content below solo-learn's licence."""
    lines = checkout.read(METHODS_FILE).splitlines()
    end = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    header = "\n".join(lines[:end]).rstrip()
    if "Copyright" not in header:
        raise UpstreamError(f"{METHODS_FILE} does not begin with solo-learn's licence.")
    checkout.put(path, f"{header}\n\n{text.strip()}\n")


def _host_places(checkout: Checkout) -> dict[str, str]:
    """Return which module of solo-learn defines the names that our methods use."""
    interface = imports_of(text_of("solo_margins.host.solo_main"))
    methods = imports_of(checkout.read(METHODS_FILE))
    return {name: module for module, name in (*interface, *methods)}


def with_import(text: str, module: str, name: str) -> str:
    """Return a module that imports a name, after the last of its imports from solo-learn."""
    line = import_line(module, [name])
    if line in text:
        return text
    *_, last = re.finditer(r"^from solo\.[^\n]*\n", text, re.MULTILINE)
    return text[: last.end()] + line + text[last.end() :]


def with_entry(text: str, opening: str, entry: str) -> str:
    """Return a module with one more entry at the end of a list or dictionary."""
    start = text.find(opening)
    if start < 0:
        raise UpstreamError(f"There is no {opening} to add {entry} to.")
    end = text.index("\n}" if opening.endswith("{") else "\n]", start)
    line = f"\n    {entry},"
    # An empty one ends on the line after its beginning.
    return text if f"{line}\n" in text[start : end + 1] else text[:end] + line + text[end:]
