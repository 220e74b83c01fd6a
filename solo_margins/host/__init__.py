"""The only door to solo-learn: one interface, whichever version of it is installed.

Everything else in this project imports its solo-learn names from here and is written once, against
solo-learn's repository (``main``). With the release of the package registry (``pypi``) the same
names are brought up to that interface. Nothing is imported before it is asked for.

>>> from solo_margins import host
>>> host.FORM in ("main", "pypi")  # doctest: +SKIP
True
"""

import importlib
from types import ModuleType
from typing import Any

from solo_margins import registry
from solo_margins.host.detect import HostNotFoundError, does_not_fit, form

# use_classification_transforms and gather are of the repository only.
_INTERFACE = """
    METHODS BaseMethod LinearModel
    parse_pretrain_cfg parse_linear_cfg
    NCropAugmentation FullTransformPipeline build_transform_pipeline build_transform_pipeline_dali
    use_classification_transforms
    Checkpointer WeightedKNNClassifier gather initialize_momentum_params build_backbone
    load_backbone pl
"""
INTERFACE = tuple(_INTERFACE.split())

# solo-learn's own methods. Their classes are called alike, with capitals, and are found here, too.
_SOLO_METHODS = """
    all4one barlow_twins byol deepclusterv2 dino mae mocov2plus mocov3 nnbyol nnclr nnsiam ressl
    simclr simsiam supcon swav vibcreg vicreg wmse
"""
SOLO_METHODS = tuple(_SOLO_METHODS.split())

# Where the names of the interface are, by the version of solo-learn.
VERSIONS = {"main": "solo_margins.host.solo_main", "pypi": "solo_margins.host.solo_1_0_2"}

__all__ = ["INTERFACE", "SOLO_METHODS", "HostNotFoundError", "form", "load", "loading"]

loading = False  # whether this layer is importing solo-learn right now
_interface: ModuleType | None = None


def load() -> ModuleType:
    """Import solo-learn, repaired or adapted, register our methods and return the interface.

    Raises:
        HostNotFoundError: no solo-learn is installed, or one that lacks what is used here.
        ImportError: a package of the extra ``train`` is missing; the message names both.
    """
    global loading, _interface
    if _interface is not None:
        return _interface
    loading = True
    try:
        interface = importlib.import_module(VERSIONS[form()])
        if not registry.disabled():
            registry.add_to(interface)
    except (ImportError, AttributeError) as missing:
        package = str(missing.name).partition(".")[0]
        if isinstance(missing, AttributeError) or package == "solo":
            raise does_not_fit(missing) from missing
        if not isinstance(missing, ModuleNotFoundError) or package == "solo_margins":
            raise
        raise ImportError(
            f"solo-learn needs {package}, which is not installed: run "
            '`pip install ".[train]"` in the folder of solo-margins.'
        ) from missing
    finally:
        loading = False
    _interface = interface
    return interface


def __getattr__(name: str) -> Any:
    if name == "FORM":
        return form()
    if name.lower() in SOLO_METHODS:
        try:
            # Subscription, not get(): the release answers for a method that it lacks. The class is
            # kept, as methods of ours derive from it.
            return globals().setdefault(name, load().METHODS[name.lower()])
        except KeyError as missing:
            raise does_not_fit(f"no dictionary of solo.methods has {missing}") from missing
    if name in INTERFACE:
        return getattr(load(), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
