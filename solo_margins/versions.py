"""Which solo-learn is installed, found without importing it, and the versions of other packages."""

import importlib.util
import platform
import re
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Literal

Form = Literal["main", "pypi"]

HOW_TO_INSTALL = """clone https://github.com/vturrisi/solo-learn and name the clone's folder in \
PYTHONPATH, or run `pip install --no-deps solo-learn==1.0.2`."""


class HostNotFoundError(ImportError):
    """solo-learn is not installed, or the package named ``solo`` is another project or a fork."""


def host_folder() -> Path:
    """Return the folder of the installed package ``solo``.

    Raises:
        HostNotFoundError: there is no such package.
    """
    spec = importlib.util.find_spec("solo")
    if spec is None or not spec.submodule_search_locations:
        raise HostNotFoundError(f"solo-learn is not installed: {HOW_TO_INSTALL}")
    return Path(next(iter(spec.submodule_search_locations)))


def form() -> Form:
    """Return which solo-learn is installed: ``"main"`` or ``"pypi"``.

    ``main`` is the repository (1.0.6 and later, configured by Hydra); ``pypi`` is the only release
    of the package registry (1.0.2, configured by keyword arguments).

    Raises:
        HostNotFoundError: no solo-learn is installed.
    """
    folder = host_folder()
    if (folder / "methods").is_dir() and (folder / "backbones").is_dir():
        return "main"
    if (folder / "methods" / "base.py").is_file() and (folder / "utils" / "lars.py").is_file():
        return "pypi"
    raise HostNotFoundError(
        f"The package `solo` in {folder} is not a supported solo-learn (1.0.6 or later from its "
        f"repository, or 1.0.2 from the package registry): {HOW_TO_INSTALL}"
    )


def version() -> str:
    """Return the version of the solo-learn that is in use, ``"unknown"`` where it does not say.

    A checkout that comes first on the path may hide an installed one; then its own file counts.
    """
    setup = host_folder().parent / "setup.py"
    text = setup.read_text() if setup.is_file() else ""
    found = re.search(r"version\s*=\s*[\"']([^\"']+)", text)
    try:
        return found[1] if found else metadata.version("solo-learn")
    except metadata.PackageNotFoundError:
        return "unknown"


def versions() -> dict[str, str]:
    """Return the versions of what a result depends on, as far as it is installed."""
    import solo_margins

    known = {"solo_margins": solo_margins.__version__, "python": platform.python_version()}
    for name in ("solo-learn", "torch", "lightning"):
        with suppress(HostNotFoundError, metadata.PackageNotFoundError):
            known[name] = version() if name == "solo-learn" else metadata.version(name)
    return known
