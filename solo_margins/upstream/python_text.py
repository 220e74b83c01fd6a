"""Edits of Python text at the places that its syntax tree names."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator

LINE_LENGTH = 100
FUTURE = "__future__"


class Edits:
    """Collects edits of a text by its original places and makes them all at once."""

    def __init__(self, text: str) -> None:
        self.tree = ast.parse(text)
        # Columns of the tree count bytes.
        self._bytes = text.encode()
        self._starts = [0]
        for line in self._bytes.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._made: list[tuple[int, int, bytes]] = []

    def segment(self, node: ast.AST) -> str:
        """Return the text of a node, decorators included, without the indentation before it."""
        start, end = self._span(node)
        return self._bytes[start:end].decode()

    def replace(self, node: ast.AST, text: str) -> None:
        """Put other text in the place of a node."""
        self._made.append((*self._span(node), text.encode()))

    def remove(self, node: ast.AST) -> None:
        """Remove the lines of a statement, and comments directly above it."""
        first, last = self._lines(node)
        while first > 1 and self._line(first - 1).lstrip().startswith(b"#"):
            first -= 1
        end = self._starts[last]
        # One of the gaps before and behind it is enough.
        while last < len(self._starts) - 1 and not self._line(last + 1).strip():
            last += 1
            end = self._starts[last]
        self._made.append((self._starts[first - 1], end, b""))

    def cut(self, node: ast.AST, until: ast.AST) -> None:
        """Remove everything from the start of a node to the start of a later one."""
        self._made.append((self._span(node)[0], self._span(until)[0], b""))

    def insert_below(self, node: ast.AST, text: str) -> None:
        """Insert whole lines below the last line of a node."""
        place = self._starts[self._lines(node)[1]]
        self._made.append((place, place, text.encode()))

    def insert_above(self, node: ast.AST, text: str) -> None:
        """Insert whole lines above the first line of a node."""
        place = self._starts[self._lines(node)[0] - 1]
        self._made.append((place, place, text.encode()))

    def result(self) -> str:
        """Return the text with all edits; of nested ones, the outer one counts."""
        kept: list[tuple[int, int, bytes]] = []
        for start, end, new in sorted(self._made, key=lambda edit: (edit[0], -edit[1])):
            if kept and start < kept[-1][1]:
                continue
            kept.append((start, end, new))
        parts, done = [], 0
        for start, end, new in kept:
            parts += [self._bytes[done:start], new]
            done = end
        return b"".join([*parts, self._bytes[done:]]).decode()

    def _line(self, number: int) -> bytes:
        return self._bytes[self._starts[number - 1] : self._starts[number]]

    def _lines(self, node: ast.AST) -> tuple[int, int]:
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(d.lineno for d in decorators)])  # type: ignore[attr-defined]
        return first, node.end_lineno  # type: ignore[attr-defined]

    def _span(self, node: ast.AST) -> tuple[int, int]:
        first, last = self._lines(node)
        start = self._starts[first - 1] + node.col_offset  # type: ignore[attr-defined]
        return start, self._starts[last - 1] + node.end_col_offset  # type: ignore[attr-defined]


def docstring_node(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> ast.Expr | None:
    """Return the statement that is the docstring of a module, class or function."""
    first = node.body[0] if node.body else None
    is_text = (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )
    return first if is_text else None  # type: ignore[return-value]


def find_definition(tree: ast.AST, path: str) -> ast.ClassDef | ast.FunctionDef | None:
    """Return the class or function at a dotted path such as ``Class.method``."""
    found: ast.AST | None = tree
    for name in path.split("."):
        body = getattr(found, "body", [])
        found = next((node for node in body if getattr(node, "name", None) == name), None)
    return found  # type: ignore[return-value]


def find_assignment(tree: ast.AST, name: str) -> ast.Assign | ast.AnnAssign | None:
    """Return the last statement of a body that gives a name its value."""
    for node in reversed(getattr(tree, "body", [])):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return node
    return None


def imported_names(tree: ast.Module) -> Iterator[tuple[str, str, str | None]]:
    """Yield module, name and alias of every import at the top; a plain import has no name."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield "." * node.level + (node.module or ""), alias.name, alias.asname
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, "", alias.asname


def used_names(tree: ast.AST) -> set[str]:
    """Return every name that a tree reads."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def bound_name(module: str, name: str, alias: str | None) -> str:
    """Return what an import calls its object here."""
    return alias or name or module.split(".")[0]


def with_imports(text: str, imports: Iterable[tuple[str, str, str | None]]) -> str:
    """Return a module with these imports at its top in the place of those that it has.

    Imports that nothing uses are left out.
    """
    edits = Edits(text)
    used = used_names(edits.tree)
    wanted = [entry for entry in imports if entry[0] == FUTURE or bound_name(*entry) in used]
    statements = [n for n in edits.tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    for statement in statements:
        edits.remove(statement)
    text = edits.result()
    tree = ast.parse(text)
    head = docstring_node(tree)
    rest = tree.body[1:] if head is not None else tree.body
    lines = text.splitlines(keepends=True)
    end = head.end_lineno if head is not None else 0
    before, behind = "".join(lines[:end]), "".join(lines[end:])
    gap = "\n\n" if rest and not isinstance(rest[0], ast.Assign | ast.AnnAssign) else "\n"
    parts = [part for part in (before, import_block(wanted)) if part]
    return "\n".join(parts) + gap + behind.lstrip("\n")


def import_block(imports: Iterable[tuple[str, str, str | None]]) -> str:
    """Return import statements, sorted, the standard library's first."""
    plain: set[str] = set()
    named: dict[str, set[str]] = defaultdict(set)
    for module, name, alias in imports:
        written = f"{name or module} as {alias}" if alias else (name or module)
        if name:
            named[module].add(written)
        else:
            plain.add(written)
    sections: tuple[list[str], list[str], list[str]] = ([], [], [])
    for module in sorted(plain):
        sections[section_of(module)].append(f"import {module}")
    for module in sorted(named):
        sections[section_of(module)].append(import_line(module, sorted(named[module], key=_order)))
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def import_line(module: str, names: list[str]) -> str:
    """Return one statement that imports names, over several lines if it is too long for one."""
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= LINE_LENGTH:
        return line
    return f"from {module} import (\n" + "".join(f"    {name},\n" for name in names) + ")"


def section_of(module: str) -> int:
    """Return the place of a module's section among imports: future, standard library, others."""
    root = module.split(".")[0].split(" ")[0]
    if root == FUTURE:
        return 0
    return 1 if root in sys.stdlib_module_names else 2


def call_text(function: str, arguments: list[str], indent: int) -> str:
    """Return a call that begins somewhere in a line, over several lines if it is too long."""
    line = f"{function}({', '.join(arguments)})"
    if indent + len(line) <= LINE_LENGTH:
        return line
    inner = "".join(f"{' ' * (indent + 4)}{argument},\n" for argument in arguments)
    return f"{function}(\n{inner}{' ' * indent})"


def _order(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest, as import sorters do."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name
