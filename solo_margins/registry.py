"""Our methods in solo-learn's table of methods, without a change in solo-learn.

Importing :mod:`solo_margins` costs nothing: it registers at once when solo-learn is already
loaded, and otherwise waits for solo-learn to be imported. Setting the environment variable
``SOLO_MARGINS_DISABLE=1`` switches that off; :func:`register` still works when called.
"""

import importlib
import importlib.abc
import os
import sys
from contextlib import nullcontext
from types import ModuleType
from typing import Any

# Name in METHODS to module:class.
OUR_METHODS = {
    "mocov3_margin": "solo_margins.methods.mocov3_margin:MoCoV3Margin",
    "simclr_margin": "solo_margins.methods.simclr_margin:SimCLRMargin",
    "byol_curv": "solo_margins.methods.byol_curv:BYOLCurv",
    "mocov2plus_margin": "solo_margins.methods.mocov2plus_margin:MoCoV2PlusMargin",
    "nnclr_margin": "solo_margins.methods.nnclr_margin:NNCLRMargin",
    "supcon_margin": "solo_margins.methods.supcon_margin:SupConMargin",
    "deepclusterv2_margin": "solo_margins.methods.deepclusterv2_margin:DeepClusterV2Margin",
    "simsiam_curv": "solo_margins.methods.simsiam_curv:SimSiamCurv",
    "nnsiam_curv": "solo_margins.methods.nnsiam_curv:NNSiamCurv",
    "nnbyol_curv": "solo_margins.methods.nnbyol_curv:NNBYOLCurv",
    "wmse_curv": "solo_margins.methods.wmse_curv:WMSECurv",
}

# Marks a hook of solo-learn's that our callbacks come in by.
OPENED = "_of_solo_margins"

_registering = False


class Method:
    """A method of ours in solo-learn's table: its class, imported when it is first used.

    It can be called, subclassed, asked and changed like the class.
    """

    def __init__(self, target: str) -> None:
        vars(self)["target"] = target

    def load(self) -> type:
        """Return the class."""
        module, name = self.target.split(":")
        return getattr(importlib.import_module(module), name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return an instance of the class."""
        return self.load()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.load(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.load(), name, value)

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (self.load(),)


class MethodNameClashError(RuntimeError):
    """Another package has already registered a method under one of our names."""


def disabled() -> bool:
    """Tell whether the user has switched automatic registration off; 0 leaves it on."""
    return os.environ.get("SOLO_MARGINS_DISABLE", "") not in ("", "0")


def register() -> None:
    """Add our methods and backbones to solo-learn's tables; a second call changes nothing.

    Raises:
        MethodNameClashError: a foreign method already has one of our names.
    """
    global _registering
    if _registering:
        return
    _registering = True
    try:
        from solo_margins import host

        interface = host.load()
        _register_backbones(interface.BaseMethod)
        _open_callbacks(interface.BaseMethod)
        _open_callbacks(interface.LinearModel)
        for name, target in OUR_METHODS.items():
            present = interface.METHODS.get(name)
            if isinstance(present, Method):
                continue
            # One that solo-learn has taken up from here does the same as ours, which has callbacks.
            if present is not None and not _is_taken_up(present, target):
                raise MethodNameClashError(
                    f"The method name {name!r} is already taken by "
                    f"{present.__module__}.{present.__qualname__}: rename that method, or set "
                    "SOLO_MARGINS_DISABLE=1 to keep solo-margins from registering its own."
                )
            # solo-learn's release, or a fork, may lack the method that ours derives from.
            if name.rpartition("_")[0] in interface.METHODS:
                interface.METHODS[name] = Method(target)
    finally:
        _registering = False


def _register_backbones(method: Any) -> None:
    from solo_margins.backbones import BACKBONES, BackboneTable
    from solo_margins.host.backbones import with_vit_of_mocov3

    table = method._BACKBONES
    if not isinstance(table, BackboneTable):
        table = method._BACKBONES = BackboneTable(with_vit_of_mocov3(table))
    for name, constructor in BACKBONES.items():
        table.setdefault(name, constructor)


def _open_callbacks(model: Any) -> None:
    """Let the callbacks of a run of ours come in by Lightning's own hook for that."""
    inherited = model.configure_callbacks
    if getattr(inherited, OPENED, False):
        return

    def configure_callbacks(self: Any) -> Any:
        from solo_margins.training.callbacks import run_callbacks

        own = inherited(self)
        return [*(own if isinstance(own, (list, tuple)) else [own]), *run_callbacks(self)]

    setattr(configure_callbacks, OPENED, True)
    model.configure_callbacks = configure_callbacks


def _is_taken_up(method: type, target: str) -> bool:
    module, name = target.removeprefix("solo_margins.").split(":")
    return (method.__module__, method.__qualname__) == (f"solo.{module}", name)


def register_when_host_loads() -> None:
    """Register now if solo-learn is loaded, otherwise as soon as it is imported."""
    if disabled():
        return
    if "solo.methods" in sys.modules:
        spec = getattr(sys.modules.get("solo"), "__spec__", None)
        if not getattr(spec, "_initializing", False) and _installed_host() is not None:
            register()
        return
    if not any(isinstance(finder, _HostFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _HostFinder())


class _HostFinder(importlib.abc.MetaPathFinder):
    """Wraps the loader of the package ``solo`` and leaves every other import alone."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != "solo" or path is not None:
            return None
        for finder in sys.meta_path:
            if isinstance(finder, _HostFinder) or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None and spec.submodule_search_locations:
                    spec.loader = _RegisteringLoader(spec.loader)
                return spec
        return None


class _RegisteringLoader(importlib.abc.Loader):
    """Runs solo-learn's own loader, then registers our methods.

    It waits for the package ``solo`` rather than ``solo.methods``: the package imports all of its
    parts, and until the last one is there the parts import each other in a circle.
    """

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        # Whoever asks for source or resources before the import gets the host's own loader.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        from solo_margins import host

        # From here on the module carries the loader it would have without us.
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        found = _installed_host()
        with host.detect.import_shims() if found == "pypi" else nullcontext():
            self._loader.exec_module(module)
        if found is not None and not host.is_loading() and not disabled():
            register()


def _installed_host() -> str | None:
    """Return which solo-learn is installed, None for another package that is called ``solo``."""
    from solo_margins.host.detect import HostNotFoundError, form

    try:
        return form()
    except HostNotFoundError:
        return None
