"""Modules of ours as modules of solo-learn."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping

from solo_margins.upstream.layout import (
    MEMBERS_THAT_STAY,
    defining_module,
    is_ours,
    place_of,
    source_of,
    stays_here,
    tree_of,
)
from solo_margins.upstream.python_text import (
    FUTURE,
    Edits,
    bound_name,
    imported_names,
    used_names,
    with_imports,
)

HOST = "solo_margins.host"


def needed_modules(modules: Iterable[str]) -> list[str]:
    """Return these modules of ours and all others that they import and solo-learn gets too."""
    found: list[str] = []
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if module in found:
            continue
        found.append(module)
        for source, name, _ in imported_names(tree_of(module)):
            if name and is_exported(source, name):
                waiting.append(module_behind(source, name))
    return sorted(found)


def exported(module: str, host_places: Mapping[str, str]) -> str:
    """Return the text of a module of ours as solo-learn's own.

    Args:
        module: its name here.
        host_places: name of a class or function of solo-learn to the module that defines it.

    Raises:
        ValueError: the module uses something that cannot be written for solo-learn.
    """
    edits = Edits(source_of(module))
    gone = _names_that_stay(edits.tree)
    imports = [(FUTURE, "annotations", None), *rewritten_imports(edits.tree)]
    for node in ast.walk(edits.tree):
        if isinstance(node, ast.ClassDef):
            _edit_class(edits, node)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            if isinstance(node.value.func, ast.Name) and node.value.func.id in gone:
                edits.remove(node)
        elif isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id == "host":
                edits.replace(node, node.attr)
                imports.append((host_places[node.attr], node.attr, None))
        elif isinstance(node, ast.Call):
            rewrite_for_older_python(edits, node)
    imports.append(("typing", "Any", None))
    text = with_imports(with_places(edits.result()), imports)
    left = gone & used_names(ast.parse(text))
    if left or re.search(r"solo[_-]margins", text):
        trace = ", ".join(sorted(left)) or "the name of this package"
        raise ValueError(f"{module} cannot be exported: {trace} would be left in it.")
    return text


def _is_host(source: str, name: str) -> bool:
    return (source == "solo_margins" and name == "host") or source == HOST


def module_behind(source: str, name: str) -> str:
    """Return the module of ours that an import of a name leads to."""
    whole = f"{source}.{name}"
    return whole if is_ours(whole) else defining_module(source, name)


def _names_that_stay(tree: ast.Module) -> set[str]:
    return {bound_name(*entry) for entry in imported_names(tree) if stays_here(entry[0])}


def is_exported(source: str, name: str) -> bool:
    """Tell whether what a module of ours imports becomes a part of solo-learn."""
    return is_ours(source) and not _is_host(source, name) and not stays_here(source)


def rewritten_imports(tree: ast.Module) -> Iterator[tuple[str, str, str | None]]:
    """Yield the imports of a module of ours as solo-learn's: module, name and alias."""
    for source, name, alias in imported_names(tree):
        if not is_ours(source):
            yield source, name, alias
        elif is_exported(source, name):
            behind = module_behind(source, name)
            if behind == f"{source}.{name}":
                package, _, last = place_of(behind).rpartition(".")
                yield package, last, alias or (name if last != name else None)
            else:
                yield place_of(behind), name, alias


def _edit_class(edits: Edits, node: ast.ClassDef) -> None:
    """Leave out what serves other parts of ours, and call losses as solo-learn's methods will."""
    for position, member in enumerate(node.body):
        if _name_of(member) in MEMBERS_THAT_STAY:
            edits.remove(member)
            following = node.body[position + 1] if position + 1 < len(node.body) else None
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                edits.remove(following)  # its documentation
        elif isinstance(member, ast.FunctionDef) and member.name == "replaced_losses":
            _edit_replaced_losses(edits, member)
        elif isinstance(member, ast.FunctionDef) and "step_with_losses" in used_names(member):
            _call_parent_step(edits, member)


def _name_of(member: ast.stmt) -> str | None:
    if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
        return member.target.id
    if isinstance(member, ast.Assign) and isinstance(member.targets[0], ast.Name):
        return member.targets[0].id
    return getattr(member, "name", None)


def replaced_losses(module: str) -> dict[str, ast.expr]:
    """Return, by the name of solo-learn's loss, what one of our methods calls instead."""
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.FunctionDef) and node.name == "replaced_losses":
            return _losses_of(node)
    return {}


def _losses_of(function: ast.FunctionDef) -> dict[str, ast.expr]:
    last = function.body[-1]
    if not isinstance(last, ast.Return) or not isinstance(last.value, ast.Dict):
        return {}
    keys = [key.value for key in last.value.keys if isinstance(key, ast.Constant)]
    return dict(zip(map(str, keys), last.value.values, strict=True))


def _edit_replaced_losses(edits: Edits, function: ast.FunctionDef) -> None:
    """Write a member with the name of solo-learn's loss for each that is replaced."""
    members = []
    documentation = ast.get_docstring(function)
    for name, loss in _losses_of(function).items():
        is_partial = isinstance(loss, ast.Call) and getattr(loss.func, "id", "") == "partial"
        if is_partial:
            assert isinstance(loss, ast.Call)
            settings = [
                f"{keyword.arg}={edits.segment(keyword.value)}" for keyword in loss.keywords
            ]
            called = edits.segment(loss.args[0])
            call = f"{called}(*args, {', '.join([*settings, '**kwargs'])})"
        else:
            call = f"{edits.segment(loss)}(*args, **kwargs)"
        members.append(
            f"def {name}(self, *args: Any, **kwargs: Any) -> Tensor:\n"
            f'        """{documentation}"""\n'
            f"        return {call}"
        )
    if members:
        edits.replace(function, "\n\n    ".join(members))
    else:
        edits.remove(function)


def _call_parent_step(edits: Edits, function: ast.FunctionDef) -> None:
    """Call the parent's training step, which finds our losses as members of the method."""
    for statement in function.body:
        calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
        for call in calls:
            if getattr(call.func, "id", "") == "step_with_losses":
                edits.remove(statement)
            elif getattr(call.func, "id", "") == "step":
                arguments = ", ".join(edits.segment(a) for a in call.args[1:])
                edits.replace(call, f"super().training_step({arguments})")


def rewrite_for_older_python(edits: Edits, call: ast.Call) -> None:
    """Leave out what older Pythons lack: ``zip``'s strict, and unions of types as objects."""
    name = getattr(call.func, "id", "")
    if name == "zip" and any(keyword.arg == "strict" for keyword in call.keywords):
        edits.replace(call, f"zip({', '.join(edits.segment(a) for a in call.args)})")
    elif name == "isinstance" and isinstance(call.args[1], ast.BinOp):
        types = edits.segment(call.args[1]).replace(" | ", ", ")
        edits.replace(call.args[1], f"({types})")


def with_places(text: str) -> str:
    """Return a text that calls our modules by their places in solo-learn."""

    def place(match: re.Match[str]) -> str:
        module, _, name = match.group().rpartition(".")
        if is_ours(match.group()):
            return place_of(match.group())
        if "." in module and is_ours(module):
            return f"{place_of(defining_module(module, name))}.{name}"
        return match.group()

    # The logger that repairs use.
    text = text.replace('"solo_margins.checkpoints"', '"solo.checkpoints"')
    # Imports are written anew behind this.
    lines = text.splitlines(keepends=True)
    return "".join(
        line
        if line.startswith(("from ", "import "))
        else re.sub(r"\bsolo_margins(\.\w+)+", place, line)
        for line in lines
    )
