"""The versions of what a result depends on."""

import platform
from importlib import metadata

import solo_margins
from solo_margins.host import detect


def versions() -> dict[str, str]:
    """Return the versions of what a result depends on."""
    found = {"solo_margins": solo_margins.__version__, "solo-learn": detect.version()}
    for name in ("torch", "lightning"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return {**found, "python": platform.python_version()}
