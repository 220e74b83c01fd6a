"""Our methods and backbones in solo-learn's tables."""

from typing import Any

from solo_margins import solo_1_0_2
from solo_margins.method_names import ALIASES, METHOD_NAMES
from solo_margins.versions import form


class MethodNameClashError(ImportError):
    """Another package has already registered a method under one of our names."""


def register() -> None:
    """Add our methods and backbones to solo-learn's tables; a second call changes nothing.

    Either all of them are added or, where it raises, none.

    With release 1.0.2, solo-learn is made importable under its repository's paths first.

    Raises:
        HostNotFoundError: no solo-learn is installed.
        MethodNameClashError: a foreign method already has one of our names.
        ImportError: a package of the extra ``train`` is missing; the message names both.
        AttributeError: a fork of solo-learn has no table of backbones where ours are added.
    """
    # It says in one sentence where there is no solo-learn.
    form()
    try:
        _register()
    except ModuleNotFoundError as missing:
        package = str(missing.name).partition(".")[0]
        if package in ("solo", "solo_margins"):
            raise
        raise ImportError(
            f"solo-learn needs {package}, which is not installed: run "
            '`pip install ".[train]"` in the folder of solo-margins.'
        ) from missing


def _register() -> None:
    solo_1_0_2.install()
    from solo.methods import METHODS
    from solo.methods.base import BaseMethod

    from solo_margins.backbones import BACKBONES

    ours = our_methods()
    for alias, name in ALIASES.items():
        if name in ours:
            ours[alias] = ours[name]
    for name, method in ours.items():
        present = METHODS.get(name, method)
        if present is not method:
            raise MethodNameClashError(
                f"The method name {name!r} is already taken by "
                f"{present.__module__}.{present.__qualname__}: rename that method, or set "
                "SOLO_MARGINS_DISABLE=1 to keep solo-margins from registering its own."
            )
    # A fork may have no such table: that must be known before the first table is changed.
    backbones = BaseMethod._BACKBONES
    METHODS.update(ours)
    for name, constructor in BACKBONES.items():
        backbones.setdefault(name, constructor)


def our_methods() -> dict[str, type]:
    """Return the classes of our methods by their names: all of them, or those for the release."""
    from solo_margins.methods.byol_curv import BYOLCurv
    from solo_margins.methods.mocov3_margin import MoCoV3Margin
    from solo_margins.methods.simclr_margin import SimCLRMargin

    methods: dict[str, type] = {
        "mocov3_margin": MoCoV3Margin,
        "simclr_margin": SimCLRMargin,
        "byol_curv": BYOLCurv,
    }
    if form() == "pypi":
        return methods

    from solo_margins.methods.deepclusterv2_margin import DeepClusterV2Margin
    from solo_margins.methods.mocov2plus_margin import MoCoV2PlusMargin
    from solo_margins.methods.nnbyol_curv import NNBYOLCurv
    from solo_margins.methods.nnclr_margin import NNCLRMargin
    from solo_margins.methods.nnsiam_curv import NNSiamCurv
    from solo_margins.methods.simsiam_curv import SimSiamCurv
    from solo_margins.methods.supcon_margin import SupConMargin
    from solo_margins.methods.wmse_curv import WMSECurv

    methods["mocov2plus_margin"] = MoCoV2PlusMargin
    methods["nnclr_margin"] = NNCLRMargin
    methods["supcon_margin"] = SupConMargin
    methods["deepclusterv2_margin"] = DeepClusterV2Margin
    methods["simsiam_curv"] = SimSiamCurv
    methods["nnsiam_curv"] = NNSiamCurv
    methods["nnbyol_curv"] = NNBYOLCurv
    methods["wmse_curv"] = WMSECurv
    return methods


def method_class(name: str) -> Any:
    """Return the class of a method by its name in solo-learn's table.

    Raises:
        NotImplementedError: it is one of ours that release 1.0.2 has no parent for.
        ValueError: there is no such method.
    """
    from solo.methods import METHODS

    if name in METHODS:
        return METHODS[name]
    if name in (*METHOD_NAMES, *ALIASES):
        raise solo_1_0_2.refusal(f"method={name}")
    listed = ", ".join(sorted(set(METHODS) - {"base", "linear"}))
    raise ValueError(f"method must be one of {listed}, got {name!r}.")
