"""Write docs/api/README.md: the signature of every documented object, and what it is in one line.

The objects are those that the other pages of docs/api name, which mkdocstrings shows in full on the
site. Nothing is imported.

python scripts/api_page.py           # write it
python scripts/api_page.py --check   # fail if it is not up to date
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
API = ROOT / "docs" / "api"
PAGE = API / "README.md"
# In this order.
PAGES = ("losses", "methods", "lens", "evaluation", "export")

INTRODUCTION = """# API

Every public function and class, written by `python scripts/api_page.py`. The headings lead to pages
that show the docstrings in full on the site; elsewhere `help(…)` prints them.

The public API is what this page lists, the settings of the configurations, and the commands. Until
version 1.0 it may change between minor versions; the changelog says so.
"""

Definition = ast.FunctionDef | ast.ClassDef


def page() -> str:
    """Return the page in Markdown."""
    parts = [INTRODUCTION]
    for name in PAGES:
        text = (API / f"{name}.md").read_text()
        title = text.splitlines()[0].removeprefix("# ")
        parts.append(f"## [{title}]({name}.md)\n")
        parts.append("\n".join(entry(target) for target in documented(text)) + "\n")
    return "\n".join(parts)


def documented(text: str) -> list[str]:
    """Return the dotted names that a page asks mkdocstrings for."""
    return re.findall(r"^::: (\S+)$", text, re.M)


def entry(target: str) -> str:
    """Return a list item for an object: where it is, its signature, its first sentence."""
    module, name, definition = found(target)
    signature = name
    if has_signature(definition):
        signature += f"({', '.join(arguments(definition))})"
    return f"- `{module}.{signature}`  \n  {first_sentence(definition)}"


def has_signature(definition: Definition) -> bool:
    """Tell whether an object's file says how it is called; a base class may say it instead."""
    if isinstance(definition, ast.FunctionDef) or definition.decorator_list:
        return True
    return any(
        isinstance(node, ast.FunctionDef) and node.name == "__init__" for node in definition.body
    )


def found(target: str) -> tuple[str, str, Definition]:
    """Return module, name and definition of an object, also of one that a package re-exports."""
    module, _, name = target.rpartition(".")
    tree = ast.parse(source_of(module).read_text())
    for node in tree.body:
        if isinstance(node, Definition) and node.name == name:
            return module, name, node
        if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]:
            return module, name, found(f"{node.module}.{name}")[2]
    raise LookupError(f"{target} is not defined in {source_of(module)}")


def source_of(module: str) -> Path:
    """Return the file of a module or package."""
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def arguments(definition: Definition) -> Iterator[str]:
    """Yield arguments with their defaults, without types; of a class those of its constructor."""
    if isinstance(definition, ast.ClassDef):
        own = {node.name: node for node in definition.body if isinstance(node, ast.FunctionDef)}
        if "__init__" not in own:
            yield from fields(definition)
            return
        definition = own["__init__"]
    signature = definition.args
    positional = [*signature.posonlyargs, *signature.args]
    required = len(positional) - len(signature.defaults)
    defaults: list[ast.expr | None] = [None] * required + list(signature.defaults)
    for argument, default in zip(positional, defaults, strict=True):
        if argument.arg != "self":
            yield shown(argument.arg, default)
    if signature.vararg:
        yield f"*{signature.vararg.arg}"
    elif signature.kwonlyargs:
        yield "*"
    for argument, default in zip(signature.kwonlyargs, signature.kw_defaults, strict=True):
        yield shown(argument.arg, default)
    if signature.kwarg:
        yield f"**{signature.kwarg.arg}"


def fields(definition: ast.ClassDef) -> Iterator[str]:
    """Yield the fields of a dataclass."""
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            value = node.value
            if isinstance(value, ast.Call) and ast.unparse(value.func) == "field":
                factory = value.keywords[0].value
                value = ast.Call(factory, [], [])
            yield shown(node.target.id, value)


def shown(name: str, default: ast.expr | None) -> str:
    """Return an argument as it is written in a call."""
    if default is None:
        return name
    return f"{name}={ast.unparse(default)}"


def first_sentence(definition: Definition) -> str:
    """Return the first sentence of a docstring, without the markup of Sphinx."""
    paragraph = (ast.get_docstring(definition) or "").partition("\n\n")[0]
    sentence = re.split(r"(?<=\.)\s(?=[A-Z])", " ".join(paragraph.split()))[0]
    # Numbers of references are those of a module's docstring.
    sentence = re.sub(r" of \[\d\]| \(\[\d\]\)", "", sentence)
    sentence = re.sub(r":math:`([^`]+)`", r"$\1$", sentence)
    sentence = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", sentence)
    return sentence.replace("``", "`")


def main() -> None:
    """Write the page, or compare it with what would be written."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    if not parser.parse_args().check:
        PAGE.write_text(page())
    elif PAGE.read_text() != page():
        sys.exit(f"{PAGE} is not up to date: run python scripts/api_page.py")


if __name__ == "__main__":
    main()
