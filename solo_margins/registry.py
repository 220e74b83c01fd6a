"""Our methods in solo-learn's table of methods, without a change in solo-learn.

Importing :mod:`solo_margins` costs nothing: it registers at once when solo-learn is already
loaded, and otherwise waits for solo-learn to be imported. Setting the environment variable
``SOLO_MARGINS_DISABLE=1`` switches that off; :func:`register` still works when called.
"""

import contextlib
import functools
import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Callable
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
        """Return an instance of the class, or raise an error of one sentence."""
        try:
            return self.load()(*args, **kwargs)
        except Exception as error:
            from solo_margins.host.detect import refusal

            if refused := refusal(error):
                raise refused from error
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self.load(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.load(), name, value)

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (self.load(),)


class MethodNameClashError(ImportError):
    """Another package has already registered a method under one of our names."""


def disabled() -> bool:
    """Tell whether the user has switched automatic registration off; 0 leaves it on."""
    return os.environ.get("SOLO_MARGINS_DISABLE", "") not in ("", "0")


def register() -> None:
    """Add our methods and backbones to solo-learn's tables; a second call changes nothing.

    Raises:
        MethodNameClashError: a foreign method already has one of our names.
    """
    from solo_margins import host

    add_to(host.load())


def add_to(interface: Any) -> None:
    """Register our methods, backbones and callbacks with solo-learn."""
    for name, target in OUR_METHODS.items():
        present = interface.METHODS.get(name)
        if present is None or isinstance(present, Method):
            continue
        if not _is_taken_up(present, target):
            raise MethodNameClashError(
                f"The method name {name!r} is already taken by "
                f"{present.__module__}.{present.__qualname__}: rename that method, or set "
                "SOLO_MARGINS_DISABLE=1 to keep solo-margins from registering its own."
            )
        # It does the same as ours, which has callbacks.
        del interface.METHODS[name]
    _register_backbones(interface.BaseMethod)
    _open_callbacks(interface.BaseMethod)
    _open_callbacks(interface.LinearModel)
    _register_methods(interface.METHODS)


def _register_methods(table: Any) -> None:
    for name, target in OUR_METHODS.items():
        # The release answers for a method that it lacks. Where a fork lacks the parent, ours does.
        if type(table) is dict or name.rpartition("_")[0] in table:
            table.setdefault(name, Method(target))


def _register_where_it_fits() -> None:
    """Register our methods, and leave a solo-learn alone that they do not fit.

    Its own methods run as without this package; one of ours says why it cannot when it is used.
    """
    with contextlib.suppress(ImportError):
        register()
    table = getattr(sys.modules.get("solo.methods"), "METHODS", None)
    if type(table) is dict and "base" in table:
        _register_methods(table)


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
        if not getattr(spec, "_initializing", False):
            _register_where_it_fits()
        return
    if not any(isinstance(finder, _HostFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _HostFinder())


class _HostFinder(importlib.abc.MetaPathFinder):
    """Registers our methods after the import of ``solo``, and leaves every other import alone.

    It waits for the package ``solo`` rather than ``solo.methods``: the package imports all of its
    parts, and until the last one is there the parts import each other in a circle.
    """

    _asks_others = False

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != "solo" or path is not None or self._asks_others:
            return None
        self._asks_others = True
        try:
            spec: Any = importlib.util.find_spec(fullname)
        finally:
            self._asks_others = False
        if spec is not None and spec.loader is not None and spec.submodule_search_locations:
            spec.loader.exec_module = functools.partial(_execute, spec.loader.exec_module)
        return spec


def _execute(execute: Callable[[ModuleType], None], module: ModuleType) -> None:
    """Run the code of the package ``solo``, then register our methods if it is solo-learn."""
    from solo_margins import host
    from solo_margins.host.detect import import_shims

    found = None
    with contextlib.suppress(host.HostNotFoundError):
        found = host.form()
    with import_shims() if found == "pypi" else contextlib.nullcontext():
        execute(module)
    if found is not None and not host.loading and not disabled():
        _register_where_it_fits()
