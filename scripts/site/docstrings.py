"""Docstrings for mkdocstrings: their reStructuredText roles and equations as Markdown.

They are written so that ``help()`` reads well; ``:class:`Margins``` and ``.. math::`` in them
are what Sphinx knows. Here they become links and ``$…$``.
"""

import re
import textwrap
from typing import Any

import griffe

_ROLE = re.compile(r":(class|func|mod|meth|data|attr):`~?([^`]+)`")
_MATH = re.compile(r":math:`([^`]+)`")
_DOUBLE = re.compile(r"``([^`]+)``")
_EQUATION = re.compile(r"^( *)\.\. math::[ ]?(.*)\n((?:(?:\1 +.*)?\n)*)", re.M)
_REFERENCE = re.compile(r"^ *- \[(\d+)\] ((?:.*\n?){1,4}?)\s*(https?://\S+?)[.]?(?:\s|$)", re.M)
_SETTINGS = re.compile(r"^(Extra cfg settings.*):\n((?:(?: +.*)?\n)+)", re.M)


class MarkdownDocstrings(griffe.Extension):
    """Rewrites every docstring before it is rendered."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            text = as_markdown(obj.docstring.value, obj)
            if not obj.is_module:
                text = with_references(text, obj.module.docstring)
            obj.docstring.value = text


def as_markdown(text: str, scope: Any = None) -> str:
    """Return a docstring with its roles and equations as Markdown.

    Args:
        text: the docstring.
        scope: the object that it belongs to, in which names are looked up.
    """
    text = _EQUATION.sub(_displayed, text + "\n")
    text = _SETTINGS.sub(_listed, text)
    # By the plural alone griffe knows that doctests follow.
    text = re.sub(r"^( *)Example:$", r"\1Examples:", text, flags=re.M)
    text = _MATH.sub(lambda found: f"${found[1]}$", text)
    text = _ROLE.sub(lambda found: _linked(found[2], scope), text)
    return _DOUBLE.sub(r"`\1`", text).rstrip()


def with_references(text: str, module: Any) -> str:
    """Return a docstring whose ``[0]`` leads to the reference of that number in its module's."""
    found = _REFERENCE.findall(module.value) if module is not None else []
    for number, title, address in found:
        title = " ".join(title.split()).rstrip(",").replace('"', "")
        text = text.replace(f"[{number}]", f'[\\[{number}\\]]({address} "{title}")')
    return text


def _displayed(found: re.Match[str]) -> str:
    """Return an equation between double dollars, at the indentation of its directive."""
    equation = textwrap.dedent(f"{found[2]}\n{textwrap.dedent(found[3])}").strip()
    lines = "$$\n" + re.sub(r"\n\s*", "\n", equation) + "\n$$\n"
    return textwrap.indent(lines, found[1]) + "\n"


def _listed(found: re.Match[str]) -> str:
    """Return the settings of a method as a nested list: one entry for each ``name (kind): …``."""
    lines = [f"**{found[1]}:**", ""]
    for line in textwrap.dedent(found[2]).splitlines():
        depth, words = len(line) - len(line.lstrip()), line.strip()
        entry = re.match(r"([\w, ]+?)(?: \(([^)]*)\))?:(?: (.*))?$", words) if words else None
        if depth <= 4 and entry:
            names = ", ".join(f"`{name.strip()}`" for name in entry[1].split(","))
            kind = f" ({entry[2]})" if entry[2] else ""
            lines.append(" " * depth + f"- {names}{kind}: {entry[3] or ''}".rstrip())
        elif words:
            lines.append(" " * max(depth, 4) + words)
    return "\n".join(lines) + "\n\n"


def _linked(name: str, scope: Any) -> str:
    """Return a name as code that links to its documentation, where there is any."""
    target = name
    if scope is not None:
        try:
            target = scope.resolve(name)
        except griffe.NameResolutionError:
            target = name
    return f'<autoref optional identifier="{target}"><code>{name}</code></autoref>'
