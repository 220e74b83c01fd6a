"""Edits of files that solo-learn already has, each made once however often it is asked for."""

from __future__ import annotations

import ast

from solo_margins.upstream.python_text import (
    Edits,
    docstring_node,
    find_assignment,
    find_definition,
    import_block,
    import_line,
    imported_names,
    section_of,
)


def with_import(text: str, module: str, name: str = "", alias: str | None = None) -> str:
    """Return a module that imports a name, or a whole module where there is no name.

    The import goes behind the one that sorts next before it in its section.
    """
    edits = Edits(text)
    if (module, name, alias) in imported_names(edits.tree):
        return text
    statements = [n for n in edits.tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    for statement in statements:
        if name and isinstance(statement, ast.ImportFrom) and statement.module == module:
            names = [f"{a.name} as {a.asname}" if a.asname else a.name for a in statement.names]
            edits.replace(statement, import_line(module, sorted([*names, name])))
            return edits.result()
    written = import_block([(module, name, alias)])
    section = [n for n in statements if section_of(_module_of(n)) == section_of(module)]
    alike = [n for n in section if isinstance(n, ast.ImportFrom) == bool(name)]
    earlier = [n for n in alike if _module_of(n) < module]
    # A package's own modules stay together; solo-learn's imports are nearly sorted.
    relatives = [n for n in earlier if _module_of(n).startswith(module.rpartition(".")[0])]
    if earlier:
        edits.insert_below(max(relatives or earlier, key=_module_of), written)
    elif section:
        edits.insert_above((alike or section)[0], written)
    elif statements:
        edits.insert_below(statements[-1], "\n" + written)
    else:
        edits.insert_above(edits.tree.body[0], written + "\n\n")
    return edits.result()


def _module_of(statement: ast.stmt) -> str:
    if isinstance(statement, ast.ImportFrom):
        return statement.module or "."
    assert isinstance(statement, ast.Import)
    return statement.names[0].name


def with_future_annotations(text: str) -> str:
    """Return a module whose annotations are not evaluated, as those of ours need it."""
    edits = Edits(text)
    if ("__future__", "annotations", None) in imported_names(edits.tree):
        return text
    head = docstring_node(edits.tree)
    line = "from __future__ import annotations\n"
    if head is not None:
        edits.insert_below(head, "\n" + line)
    else:
        edits.insert_above(edits.tree.body[0], line + "\n")
    return edits.result()


def with_entry(
    text: str, target: str, key: str, value: str | None = None, sort: bool = True
) -> str:
    """Return a module with an entry more in a list or dictionary that is written out in it.

    It goes behind the entry that sorts next before it, as solo-learn's lists are nearly sorted, or
    to the end.

    Args:
        text: the module.
        target: a variable, or ``Class.variable``.
        key: the entry, or the key of it.
        value: of the key, for a dictionary.
        sort: whether its place follows from the alphabet.
    """
    edits = Edits(text)
    owner_name, _, variable = target.rpartition(".")
    owner = find_definition(edits.tree, owner_name) if owner_name else edits.tree
    assignment = None if owner is None else find_assignment(owner, variable)
    collection = assignment.value if assignment is not None else None
    if not isinstance(collection, ast.Dict | ast.List):
        raise ValueError(f"{target} is no list or dictionary that is written out.")
    entries = collection.keys if isinstance(collection, ast.Dict) else collection.elts
    values = collection.values if isinstance(collection, ast.Dict) else collection.elts
    names = [entry.value if isinstance(entry, ast.Constant) else None for entry in entries]
    if key in names:
        return text
    before = {
        name.lower(): node
        for name, node in zip(names, values, strict=True)
        if isinstance(name, str) and name.lower() < key.lower() and name not in ("base", "linear")
    }
    indent = " " * (values[0].col_offset if owner_name else 4)
    written = f'{indent}"{key}",\n' if value is None else f'{indent}"{key}": {value},\n'
    if not sort:
        edits.insert_below(values[-1], written)
    elif before:
        edits.insert_below(before[max(before)], written)
    else:
        first = entries[0]
        assert first is not None
        edits.insert_above(first, written)
    return edits.result()


def with_loss_as_member(text: str, method: str, loss: str) -> str:
    """Return a module whose method calls its loss as a member, which a subclass can replace."""
    edits = Edits(text)
    owner = find_definition(edits.tree, method)
    step = find_definition(edits.tree, f"{method}.training_step")
    if not isinstance(owner, ast.ClassDef) or step is None:
        raise ValueError(f"there is no training step of {method}.")
    if find_assignment(owner, loss) is not None:
        return text
    calls = [n for n in ast.walk(step) if isinstance(n, ast.Name) and n.id == loss]
    if not calls:
        raise ValueError(f"the training step of {method} does not call {loss}.")
    for name in calls:
        edits.replace(name, f"self.{loss}")
    edits.insert_above(
        owner.body[0],
        f"    # a subclass can replace its loss\n    {loss} = staticmethod({loss})\n\n",
    )
    return edits.result()


def with_vit_like(text: str, method: str, relative: str) -> str:
    """Return solo-learn's module of ViTs, giving a method the variant of its relative."""
    edits = Edits(text)
    for node in ast.walk(edits.tree):
        if not isinstance(node, ast.Dict):
            continue
        entries = {
            str(key.value): edits.segment(value)
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant)
        }
        if relative in entries and method not in entries:
            entries = {**entries, method: entries[relative]}
            lines = "".join(f'        "{key}": {value},\n' for key, value in entries.items())
            edits.replace(node, "{\n" + lines + "    }")
    return edits.result()


def with_listed(text: str, line: str, below: str) -> str:
    """Return a text with a line more below the first that begins like another one.

    Raises:
        ValueError: there is no such line.
    """
    lines = text.splitlines()
    if line in lines:
        return text
    for number, present in enumerate(lines):
        if present.startswith(below):
            return "\n".join([*lines[: number + 1], line, *lines[number + 1 :]]) + "\n"
    raise ValueError(f"it has no line that begins with {below!r}.")
