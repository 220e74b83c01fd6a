"""Which version of solo-learn is installed, without importing it, and what its import needs."""

import gc
import importlib.util
import platform
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Literal

# Modules of solo-learn that it does without. They bring pandas, UMAP and DALI.
OPTIONAL_PARTS = "utils.auto_umap utils.dali_dataloader data.dali_dataloader methods.dali"


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import only what a run needs, in a process that has not imported torch yet.

    Optional parts of solo-learn are not found; they can be imported afterwards.
    """
    if "torch" in sys.modules:
        yield
        return
    # torchmetrics imports scipy.signal, which brings most of scipy, to look for this one name;
    # timm imports wandb for a function that nobody calls.
    shims: dict[str, Any] = {"scipy.signal": SimpleNamespace(hamming=None), "wandb": None}
    with _imports(shims | {f"solo.{part}": None for part in OPTIONAL_PARTS.split()}):
        yield
        # Modules stay for ever: the garbage collector need not look at them later, either.
        gc.freeze()


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
    with _imports(shims):
        yield


@contextmanager
def _imports(shims: dict[str, Any]) -> Iterator[None]:
    """Let imports find these modules instead of others, or not find those that are None.

    The garbage collector rests: it would look at everything imported so far again and again.
    """
    before = {name: sys.modules[name] for name in shims if name in sys.modules}
    collects = gc.isenabled()
    sys.modules.update(shims)
    gc.disable()
    try:
        yield
    finally:
        for name in shims:
            sys.modules.pop(name, None)
        sys.modules.update(before)
        if collects:
            gc.enable()


Form = Literal["main", "pypi"]

HOW_TO_INSTALL = """clone https://github.com/vturrisi/solo-learn and name the clone's folder in \
PYTHONPATH, or run `pip install --no-deps solo-learn==1.0.2`."""


class HostNotFoundError(ImportError):
    """solo-learn is not installed, or the package named ``solo`` is another project or a fork."""


def does_not_fit(reason: object) -> HostNotFoundError:
    """Return an error of one sentence for a solo-learn that lacks what is used here."""
    return HostNotFoundError(
        f"The solo-learn in {host_folder()} does not fit solo-margins: {reason}. Known to work are "
        "solo-learn's repository (1.0.6, since December 2023) and its release 1.0.2."
    )


def refusal(error: BaseException) -> Exception | None:
    """Return an error that Hydra prints as one sentence for what a method of ours has met.

    That is a setting which we refuse, or what a fork of solo-learn takes or returns otherwise.
    Returns None for any other error.
    """
    from hydra.errors import CompactHydraException

    names = [
        frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)
    ]
    # Where torch looks an attribute up is not where it was asked for.
    place = ["", *(name for name in names if not name.startswith("torch."))][-1]
    # Where methods of ours read their settings and call solo-learn.
    is_ours = re.match(r"solo_margins\.(config|host|losses|methods|registry)\b", place)
    if isinstance(error, (AttributeError, KeyError, TypeError)):
        error = does_not_fit(f"{place} meets {type(error).__name__}: {error}")
    refused = type("MethodRefused", (ValueError, CompactHydraException), {})(str(error))
    return refused if is_ours and isinstance(error, (ValueError, ImportError)) else None


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
