"""Modules of ours as modules of solo-learn: the same text with rewritten imports."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "solo_margins"
SHARED = "solo.utils.margins"
"""What several losses and methods need, as a package of solo-learn."""

REPAIRS = "solo_margins.host.repairs"
OF_REPAIRS = ("solo_margins.host.changes", "solo_margins.checkpoints", "solo_margins.same_run")
"""What repairs need besides."""

SHARED_BY_METHODS = ("schedules", "settings")
"""Modules among our methods that hold none."""

IMPORT = re.compile(r"^from ([\w.]+) import (?:\(([^)]*)\)|([^\n(]*))\n", re.MULTILINE)

TEMPLATES = Path(__file__).resolve().parent / "templates"
"""Files that are not copies of ours."""


def template(name: str) -> str:
    """Return the text of a template."""
    return (TEMPLATES / f"{name}.txt").read_text()


def text_of(module: str) -> str:
    """Return the text of one of our modules."""
    if module == "solo_margins.losses.forms":
        # Without the engine, whose tiles and gradients solo-learn does not get.
        return template("forms")
    path = PACKAGE.joinpath(*module.split(".")[1:])
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()


def is_module(name: str) -> bool:
    """Tell whether a name is that of a module of ours."""
    path = PACKAGE.joinpath(*name.split(".")[1:])
    return name.startswith("solo_margins") and (path.is_dir() or path.with_suffix(".py").is_file())


def imports_of(text: str) -> Iterator[tuple[str, str]]:
    """Yield module and name of everything that a module imports by ``from``."""
    for module, several, one in IMPORT.findall(text):
        for name in (several or one).split(","):
            if name.strip():
                yield module, name.split(" as ")[0].strip()


def defining_module(source: str, name: str) -> str:
    """Return which of our modules an import of a name from a package of ours leads to."""
    if is_module(f"{source}.{name}"):
        return f"{source}.{name}"
    if (PACKAGE.joinpath(*source.split(".")[1:])).is_dir():
        return next(module for module, given in imports_of(text_of(source)) if given == name)
    return source


def loss_functions(module: str) -> list[str]:
    """Return the public loss functions that a module of ours defines."""
    return re.findall(r"^def (\w+_loss_func)\(", text_of(module), re.MULTILINE)


def place_of(module: str) -> str:
    """Return what a module of ours is called in solo-learn.

    Example:
        >>> place_of("solo_margins.losses.mocov3"), place_of("solo_margins.losses.plain")
        ('solo.losses.mocov3_margin', 'solo.utils.margins.plain')
        >>> place_of("solo_margins.methods.simclr_margin")
        'solo.methods.simclr_margin'
    """
    name = module.rpartition(".")[2]
    if module.startswith("solo_margins.losses.") and loss_functions(module):
        return f"solo.losses.{loss_functions(module)[0].removesuffix('_loss_func')}"
    if module.startswith("solo_margins.methods.") and name not in SHARED_BY_METHODS:
        return f"solo.methods.{name}"
    if module.startswith(REPAIRS) or module in OF_REPAIRS:
        return f"solo.repairs.{name}"
    return f"{SHARED}.{name}"


def file_of(place: str) -> str:
    """Return the file of a module of solo-learn, from the top of its checkout."""
    return f"{place.replace('.', '/')}.py"


def needed_modules(modules: Iterable[str]) -> list[str]:
    """Return these modules of ours and all others that they import, solo-learn's door left out."""
    waiting, found = list(modules), set()
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            for source, name in imports_of(text_of(module)):
                if source.startswith("solo_margins") and (source, name) != ("solo_margins", "host"):
                    waiting.append(defining_module(source, name))
    return sorted(found)


def exported(module: str, host_places: Mapping[str, str]) -> str:
    """Return the text of a module of ours as solo-learn's own.

    Args:
        module: its name here.
        host_places: name of a class or function of solo-learn to the module that defines it.
    """
    text = text_of(module)
    of_host = sorted(set(re.findall(r"\bhost\.(\w+)", text)))

    def rewritten(match: re.Match[str]) -> str:
        source = match[1]
        if not source.startswith("solo_margins"):
            return match[0]
        if source == "solo_margins":
            return "".join(import_line(host_places[name], [name]) for name in of_host)
        by_place: dict[str, list[str]] = {}
        for _, name in imports_of(match[0]):
            behind = defining_module(source, name)
            place = place_of(behind)
            is_whole = behind == f"{source}.{name}"
            by_place.setdefault(place.rpartition(".")[0] if is_whole else place, []).append(name)
        return "".join(import_line(place, names) for place, names in sorted(by_place.items()))

    text = IMPORT.sub(rewritten, text)
    text = re.sub(r"\bhost\.(\w+)", r"\1", text).replace(", strict=True)", ")")
    text = re.sub(r"solo_margins(?:\.\w+)+", _place_in_prose, text)
    if "from __future__ import annotations" not in text:
        head = text.index('"""', 3) + 4
        text = f"{text[:head]}\nfrom __future__ import annotations\n{text[head:]}"
    return text


def _place_in_prose(match: re.Match[str]) -> str:
    module, _, name = match[0].rpartition(".")
    if is_module(match[0]):
        return place_of(match[0])
    if module == "solo_margins":  # the name of a logger
        return f"solo.{name}"
    return f"{place_of(defining_module(module, name))}.{name}"


def import_line(module: str, names: Iterable[str]) -> str:
    """Return an import, on several lines where it is longer than 100 characters."""
    line = f"from {module} import {', '.join(sorted(names))}\n"
    if len(line) <= 101:
        return line
    return f"from {module} import (\n" + "".join(f"    {name},\n" for name in sorted(names)) + ")\n"
