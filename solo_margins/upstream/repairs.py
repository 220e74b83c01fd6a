"""Writes the repairs that the host layer makes at run time into a checkout's own files."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from solo_margins.host.main_form.repairs import REPAIRS
from solo_margins.host.patches import Change, Extend, Rebase, Repair, Wrap
from solo_margins.upstream import host_files
from solo_margins.upstream.checkout import Checkout, UpstreamError
from solo_margins.upstream.layout import PACKAGE, file_of, place_of, source_of, tree_of
from solo_margins.upstream.methods import licence_header, put_python
from solo_margins.upstream.modules import (
    exported,
    is_exported,
    module_behind,
    rewrite_for_older_python,
    rewritten_imports,
    with_places,
)
from solo_margins.upstream.python_text import (
    Edits,
    bound_name,
    call_text,
    find_assignment,
    find_definition,
    imported_names,
    used_names,
    with_imports,
)

TESTS = PACKAGE.parent / "tests" / "host" / "repairs"
BINDING = {"staticmethod", "classmethod", "property"}
"""Decorators that change how a method is called."""


def add_repairs(checkout: Checkout, names: Sequence[str]) -> None:
    """Add repairs, each with its test.

    Raises:
        UpstreamError: a repair is unknown, or does not fit the checkout.
    """
    known = {repair.name: repair for repair in REPAIRS}
    for name in names:
        if name not in known:
            raise UpstreamError(f"--repair {name} is none of ours, which are {', '.join(known)}.")
    for name in names:
        _add_repair(checkout, known[name])


def _add_repair(checkout: Checkout, repair: Repair) -> None:
    for change in repair.changes:
        path = file_of(f"solo.{change.module}")
        try:
            text = _changed(checkout, checkout.read(path), change)
        except ValueError as reason:
            raise UpstreamError(f"the repair {repair.name} does not fit {path}: {reason}") from None
        checkout.put(path, text)
    test = TESTS / f"test_{repair.name}.py"
    if not test.is_file():
        raise UpstreamError(
            f"the test of {repair.name} is missing: export from a clone of this project, which has "
            "tests/host/repairs."
        )
    put_python(checkout, _test_path(checkout, repair), test.read_text())


def _test_path(checkout: Checkout, repair: Repair) -> Path:
    """Return where the test goes: where solo-learn tests the module that is changed first."""
    area = "dali" if "dali" in repair.name else repair.changes[0].module.split(".")[0]
    if not checkout.has(f"tests/{area}/__init__.py"):
        raise UpstreamError(f"{checkout.folder} has no folder tests/{area}.")
    return Path("tests", area, f"test_{repair.name}.py")


def _changed(checkout: Checkout, text: str, change: Change) -> str:
    if isinstance(change, Extend):
        for value in change.values:
            text = host_files.with_entry(text, change.target, value, sort=False)
        return text
    if isinstance(change, Rebase):
        module = change.base.__module__
        text = _with_definition(checkout, text, module, change.base.__name__, change.target)
        return _with_base(text, change.target, module, change.base.__name__)
    return _with_function(checkout, text, change)


def _with_base(text: str, target: str, module: str, base: str) -> str:
    edits = Edits(text)
    changed = find_definition(edits.tree, target)
    ours = find_definition(tree_of(module), base)
    if not isinstance(changed, ast.ClassDef) or not isinstance(ours, ast.ClassDef):
        raise ValueError(f"there is no class {target}.")
    covered = {node.id for node in ours.bases if isinstance(node, ast.Name)}
    for node in changed.bases:
        if isinstance(node, ast.Name) and node.id in covered:
            edits.replace(node, base)
    return edits.result()


def _with_function(checkout: Checkout, text: str, change: Any) -> str:
    """Return a module of solo-learn with a function of ours in the place of one of its own."""
    function: Callable[..., Any] = change.function
    module = inspect.getmodule(function).__name__  # type: ignore[union-attr]
    owner_name, _, name = change.target.rpartition(".")
    edits = Edits(text)
    owner = find_definition(edits.tree, owner_name) if owner_name else edits.tree
    if owner is None:
        raise ValueError(f"there is no {owner_name}.")
    present = find_definition(owner, name)
    wraps = isinstance(change, Wrap)
    if wraps and find_definition(owner, _plain_name(name)) is not None:
        return text
    if wraps and present is None and not owner_name:
        raise ValueError(f"there is no {name}.")
    if wraps and owner_name and present is not None:
        # Written before, where the class had none of its own.
        inherited = _function_text(module, function.__name__, name, f"super().{name}")
        if edits.segment(present) == textwrap.indent(inherited, "    ").lstrip():
            return text
    original = _call_of_original(name, bool(owner_name), present is None)
    written = _function_text(module, function.__name__, name, original if wraps else None)
    indented = textwrap.indent(written, "    ") if owner_name else written
    if present is None:
        assert isinstance(owner, ast.ClassDef)
        edits.insert_below(owner.body[-1], "\n" + indented + "\n")
    elif edits.segment(present) == indented.lstrip():
        return text
    elif wraps:
        if BINDING & {getattr(node, "id", "") for node in present.decorator_list}:
            raise ValueError(f"{change.target} is not an ordinary method, as a wrapper would be.")
        edits.replace(present, indented.lstrip() + _gap(owner_name) + _plain(edits, present, name))
    else:
        edits.replace(present, indented.lstrip())
    text = edits.result()
    for used in sorted(_free_names(written)):
        text = _with_definition(checkout, text, module, used, owner_name or name)
    return host_files.with_future_annotations(text)


def _gap(owner_name: str) -> str:
    return "\n\n    " if owner_name else "\n\n\n"


def _plain_name(name: str) -> str:
    """Return the name that a wrapped function goes on to exist under."""
    return f"_plain_{name.strip('_')}"


def _plain(edits: Edits, function: ast.AST, name: str) -> str:
    # Decorators stay with what they decorate.
    text = edits.segment(function)
    return re.sub(rf"^( *)def {name}\(", rf"\1def {_plain_name(name)}(", text, count=1, flags=re.M)


def _call_of_original(name: str, is_method: bool, is_inherited: bool) -> str:
    if not is_method:
        return _plain_name(name)
    return f"super().{name}" if is_inherited else f"self.{_plain_name(name)}"


def _function_text(module: str, function: str, name: str, original: str | None) -> str:
    """Return a function of ours under another name, calling ``original`` by its name there."""
    edits = Edits(source_of(module))
    node = find_definition(edits.tree, function)
    assert isinstance(node, ast.FunctionDef)
    inner = Edits(textwrap.dedent(edits.segment(node)))
    parameters = inner.tree.body[0].args.args  # type: ignore[attr-defined]
    if original is not None:
        inner.cut(parameters[0], parameters[1])
    for part in ast.walk(inner.tree):
        if not isinstance(part, ast.Call):
            continue
        rewrite_for_older_python(inner, part)
        if original is not None and getattr(part.func, "id", "") == "original":
            # A method is bound already.
            given = part.args[1:] if "." in original else part.args
            arguments = [inner.segment(argument) for argument in given]
            for keyword in part.keywords:
                value = inner.segment(keyword.value)
                arguments.append(f"{keyword.arg}={value}" if keyword.arg else f"**{value}")
            inner.replace(part, call_text(original, arguments, part.col_offset))
    text = inner.result()
    text = re.sub(r"\bdef \w+\(", f"def {name}(", text, count=1)
    text = re.sub(r"\n +original: .*", "", text.replace("self: Any", "self"))
    return with_places(text).rstrip()


def _definition_text(module: Edits, node: ast.AST) -> str:
    edits = Edits(module.segment(node))
    for part in ast.walk(edits.tree):
        if isinstance(part, ast.Call):
            rewrite_for_older_python(edits, part)
    return with_places(edits.result())


def _free_names(text: str) -> set[str]:
    """Return the names that a function or class takes from its module."""
    tree = ast.parse(text)
    bound = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    bound |= {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return used_names(tree) - bound - set(dir(builtins))


def _with_definition(checkout: Checkout, text: str, module: str, name: str, above: str) -> str:
    """Return a module of solo-learn that knows a name of one of our modules.

    What our module defines is written above a class or function; what it imports is imported.
    """
    tree = ast.parse(text)
    is_known = find_definition(tree, name) is not None or find_assignment(tree, name) is not None
    if is_known or name in {bound_name(*entry) for entry in imported_names(tree)}:
        return text
    ours = Edits(source_of(module))
    node = find_definition(ours.tree, name) or find_assignment(ours.tree, name)
    if node is not None:
        edits = Edits(text)
        place = find_definition(edits.tree, above.split(".")[0])
        assert place is not None
        written = _definition_text(ours, node)
        edits.insert_above(place, written + "\n\n\n")
        text = edits.result()
        for used in sorted(_free_names(written) - {name}):
            text = _with_definition(checkout, text, module, used, name)
        return text
    for source, given, alias in imported_names(ours.tree):
        if bound_name(source, given, alias) == name and is_exported(source, given):
            _export_definitions(checkout, module_behind(source, given), given)
    for entry in rewritten_imports(ours.tree):
        if bound_name(*entry) == name:
            return host_files.with_import(text, *entry)
    return text


def _export_definitions(checkout: Checkout, module: str, name: str) -> None:
    """Add to a module of solo-learn's utilities what one of ours defines under a name."""
    path = file_of(place_of(module))
    if not checkout.has(path):
        head = Edits(source_of(module))
        documentation = ast.get_docstring(head.tree) or ""
        put_python(checkout, path, f'"""{documentation}"""\n\nfrom __future__ import annotations\n')
    text = checkout.read(path)
    if find_definition(ast.parse(text), name) is None:
        whole = Edits(exported(module, {}))
        node = find_definition(whole.tree, name) or find_assignment(whole.tree, name)
        assert node is not None, (module, name)
        text = text.rstrip() + "\n\n\n" + whole.segment(node) + "\n"
        for used in sorted(_free_names(whole.segment(node)) - {name}):
            text = _with_definition(checkout, text, module, used, name)
        header = licence_header(checkout)
        body = text.removeprefix(header)
        put_python(checkout, path, with_imports(body, imported_names(ast.parse(body))).lstrip())
