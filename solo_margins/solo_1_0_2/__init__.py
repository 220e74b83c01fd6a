"""solo-learn 1.0.2, the only release of the package registry, made to look like the repository.

Each module in the folders below takes the place of the module of the same name in ``solo``: after
`install`, ``from solo.methods.mocov3 import MoCoV3`` means the same with either solo-learn.
Parts of the release are used where they do what those of the repository do; what it lacks is
written here against the interface of the repository. There is what our three methods for the
release, the demo and the tests need. With the repository nothing here is ever imported.
"""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from solo_margins.versions import form

# Modules of this folder, packages before their parts.
MODULES = (
    "args.linear",
    "args.pretrain",
    "data",
    "data.pretrain_dataloader",
    "losses.mocov3",
    "losses.simclr",
    "methods",
    "methods.base",
    "methods.byol",
    "methods.linear",
    "methods.mocov3",
    "methods.simclr",
)


def install() -> None:
    """Make release 1.0.2 importable under the repository's paths; do nothing with the repository.

    It must be called before the first import of ``solo``. A second call changes nothing.
    """
    # The release has no module of that name.
    if form() == "main" or "solo.methods.mocov3" in sys.modules:
        return
    with _modules_for_the_import():
        importlib.import_module("solo")
    # First all of them: they import the modules of the release whose place they take.
    modules = {name: importlib.import_module(f"{__name__}.{name}") for name in MODULES}
    for name in list(sys.modules):
        if name.startswith("solo.methods."):
            # A method of the release that is not adapted is not found, rather than found to fail.
            del sys.modules[name]
    for name, module in modules.items():
        package, _, own_name = f"solo.{name}".rpartition(".")
        sys.modules[f"solo.{name}"] = module
        setattr(sys.modules[package], own_name, module)


@contextmanager
def _modules_for_the_import() -> Iterator[None]:
    """Let imports of the release find modules that it needs, for the time of its import only.

    It imports a scheduler from ``pl_bolts``, which cannot be installed beside Lightning 2, and the
    Lightning of ``pytorch_lightning``, whose modules a trainer of ``lightning.pytorch`` refuses.
    """
    import lightning.pytorch as pl

    schedulers = ModuleType("pl_bolts.optimizers.lr_scheduler")
    # Methods are given a scheduler of ours.
    schedulers.LinearWarmupCosineAnnealingLR = None  # type: ignore[attr-defined]
    needed = {
        "pl_bolts": ModuleType("pl_bolts"),
        "pl_bolts.optimizers": ModuleType("pl_bolts.optimizers"),
        "pl_bolts.optimizers.lr_scheduler": schedulers,
        "pytorch_lightning": pl,
        "pytorch_lightning.callbacks": pl.callbacks,
    }
    # Also where pytorch_lightning is loaded: classes of both cannot be mixed.
    before = {name: sys.modules[name] for name in needed if name in sys.modules}
    sys.modules.update(needed)
    try:
        yield
    finally:
        for name in needed:
            sys.modules.pop(name, None)
        sys.modules.update(before)


def refusal(what: str) -> NotImplementedError:
    """Return the error that names the solo-learn which has something."""
    return NotImplementedError(
        f"{what} is not offered with solo-learn 1.0.2 from the package registry; "
        "solo-learn's repository (1.0.6 or later) has it."
    )
