"""Pages of solo-learn's documentation, and the lists that lead to them."""

from __future__ import annotations

import ast
import re

from solo_margins.upstream.checkout import Checkout
from solo_margins.upstream.host_files import with_listed
from solo_margins.upstream.layout import loss_functions, place_of, tree_of

INDEX = "docs/source/index.rst"


def add_method_page(checkout: Checkout, module: str, class_name: str, parent: str) -> None:
    """Add a page on a method, and list it in the documentation and in the README."""
    title, paper = title_of(module), _paper_of(module)
    name = module.rpartition(".")[2]
    method = next(n for n in ast.walk(tree_of(module)) if isinstance(n, ast.ClassDef))
    members = [node.name for node in method.body if isinstance(node, ast.FunctionDef)]
    public = [member for member in members if not member.startswith("_")]
    place = f"{place_of(module)}.{class_name}"
    parts = [f"{title}\n{'=' * len(title)}\n", f".. autoclass:: {place}\n   :noindex:\n"]
    for member in dict.fromkeys([*public, "training_step"]):
        if member != "replaced_losses":
            parts.append(f"{member}\n{'~' * len(member)}")
            parts.append(f".. automethod:: {place}.{member}\n   :noindex:\n")
    checkout.put(f"docs/source/solo/methods/{name}.rst", "\n".join(parts))
    _list(checkout, INDEX, f"   solo/methods/{name}", f"   solo/methods/{parent}")
    _list(checkout, "README.md", f"* [{title}]({paper})", _bullet_of(checkout, parent))


def add_loss_page(checkout: Checkout, module: str) -> None:
    """Add a page on the losses of a module, and list it in the documentation."""
    title = title_of(module)
    name = place_of(module).rpartition(".")[2]
    parts = [f"{title}\n{'-' * len(title)}\n"]
    for function in loss_functions(module):
        parts.append(f".. autofunction:: {place_of(module)}.{function}\n   :noindex:\n")
    checkout.put(f"docs/source/solo/losses/{name}.rst", "\n".join(parts))
    parent = module.rpartition(".")[2]
    _list(checkout, INDEX, f"   solo/losses/{name}", f"   solo/losses/{parent}")


def title_of(module: str) -> str:
    """Return the first line of what a module of ours says about itself."""
    text = ast.get_docstring(tree_of(module)) or ""
    return text.splitlines()[0].rstrip(".")


def _paper_of(module: str) -> str:
    """Return the address of the paper that a method of ours follows: the last but the parent's."""
    addresses = re.findall(r"https://\S+", ast.get_docstring(tree_of(module)) or "")
    return str(addresses[1])


def _bullet_of(checkout: Checkout, parent: str) -> str:
    """Return how the README's line on a method begins."""
    for line in checkout.read("README.md").splitlines():
        label = re.match(r"\* \[([^\]]+)\]", line)
        plain = label.group(1).lower().replace("+", "plus") if label else ""
        if label and re.sub(r"[^a-z0-9]", "", plain) == parent:
            return label.group()
    return "* [W-MSE]"


def _list(checkout: Checkout, path: str, line: str, below: str) -> None:
    text = checkout.read(path)
    if line in text.splitlines():
        return
    if not any(present.startswith(below) for present in text.splitlines()):
        # A method that has no page of its own: at the end of the list.
        start = below.rpartition("/")[0] + "/"
        below = [present for present in text.splitlines() if present.startswith(start)][-1]
    checkout.put(path, with_listed(text, line, below))
