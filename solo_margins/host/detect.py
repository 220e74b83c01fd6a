"""Which version of solo-learn is installed, without importing it, and what its import needs."""

import gc
import importlib.util
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

# Parts of solo-learn that it does without: they bring pandas, UMAP and DALI.
OPTIONAL_PARTS = """
    solo.utils.auto_umap solo.utils.dali_dataloader solo.data.dali_dataloader
"""


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import what a run needs sooner, in a process that has not imported torch yet.

    Optional parts of solo-learn are not found; they can be imported afterwards. The garbage
    collector rests: it would look at all modules again and again, and has nothing to collect.
    """
    if "torch" in sys.modules:
        yield
        return
    signal = ModuleType("scipy.signal")
    # torchmetrics imports this module, and most of scipy with it, to see if it has this function.
    signal.hamming = None  # type: ignore[attr-defined]
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with _modules({**dict.fromkeys(OPTIONAL_PARTS.split()), "scipy.signal": signal}):
            yield
    finally:
        # Modules stay for ever: the collector need not look at them later, either.
        gc.freeze()
        if was_enabled:
            gc.enable()


@contextmanager
def import_shims() -> Iterator[None]:
    """Make solo-learn 1.0.2 importable beside Lightning 2, for the time of the import only.

    It imports a scheduler from ``pl_bolts``, which cannot be installed beside Lightning 2, and the
    Lightning of ``pytorch_lightning``, whose modules a trainer of ``lightning.pytorch`` refuses.
    """
    from solo_margins.host.lightning import pl

    bolts_scheduler = ModuleType("pl_bolts.optimizers.lr_scheduler")
    # Methods are given a scheduler of ours.
    bolts_scheduler.LinearWarmupCosineAnnealingLR = None  # type: ignore[attr-defined]
    shims = {
        "pl_bolts": ModuleType("pl_bolts"),
        "pl_bolts.optimizers": ModuleType("pl_bolts.optimizers"),
        "pl_bolts.optimizers.lr_scheduler": bolts_scheduler,
        "pytorch_lightning": pl,
        "pytorch_lightning.callbacks": pl.callbacks,
    }
    # Also where pytorch_lightning is loaded: classes of both cannot be mixed.
    with _modules(shims):
        yield


@contextmanager
def _modules(wanted: dict[str, Any]) -> Iterator[None]:
    """Let imports find these modules, none where it is None, instead of those that are there."""
    before = {name: sys.modules.get(name) for name in wanted}
    sys.modules.update(wanted)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is not None:
                sys.modules[name] = module
            else:
                sys.modules.pop(name, None)


Form = Literal["main", "pypi"]

INSTALL_COMMAND = "pip install --no-deps solo-learn==1.0.2"
REPOSITORY = "https://github.com/vturrisi/solo-learn"


class HostNotFoundError(ImportError):
    """solo-learn is not installed, or the package named ``solo`` is another project."""


def host_folder() -> Path:
    """Return the folder of the installed package ``solo``.

    Raises:
        HostNotFoundError: there is no such package.
    """
    loaded = sys.modules.get("solo")
    locations = getattr(loaded, "__path__", None)
    if locations is None:
        spec = importlib.util.find_spec("solo")
        locations = spec.submodule_search_locations if spec is not None else None
    folders = [Path(location) for location in locations or ()]
    if not folders:
        raise HostNotFoundError(
            "solo-learn is not installed: clone it from "
            f"{REPOSITORY} and install it, or run `{INSTALL_COMMAND}`."
        )
    return folders[0]


def form() -> Form:
    """Return which solo-learn is installed: ``"main"`` or ``"pypi"``.

    ``main`` is the repository (1.0.6 and later, configured by Hydra); ``pypi`` is the only release
    of the package registry (1.0.2, configured by keyword arguments).

    Raises:
        HostNotFoundError: no solo-learn is installed.
    """
    folder = host_folder()
    if (folder / "backbones").is_dir() and (folder / "utils" / "lr_scheduler.py").is_file():
        return "main"
    if (folder / "methods" / "base.py").is_file() and (folder / "utils" / "lars.py").is_file():
        return "pypi"
    raise HostNotFoundError(
        f"The package `solo` in {folder} is not a supported solo-learn (1.0.6 or later from its "
        f"repository, or 1.0.2 from the package registry): clone {REPOSITORY} and install it, "
        f"or run `{INSTALL_COMMAND}`."
    )


def version() -> str:
    """Return the version of the solo-learn that is in use, ``"unknown"`` where it does not say.

    A checkout that comes first on the path may hide an installed one; then its own file counts.
    """
    folder = host_folder()
    try:
        installed = metadata.distribution("solo-learn")
    except metadata.PackageNotFoundError:
        installed = None
    if installed is not None and Path(str(installed.locate_file("solo"))).resolve() == folder:
        return installed.version
    setup = folder.parent / "setup.py"
    found = setup.is_file() and re.search(r"version\s*=\s*[\"']([^\"']+)", setup.read_text())
    return found.group(1) if found else "unknown"


def versions() -> dict[str, str]:
    """Return the versions of what a result depends on."""
    import solo_margins

    found = {"solo_margins": solo_margins.__version__, "solo-learn": version()}
    for name in ("torch", "lightning"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return {**found, "python": platform.python_version()}
