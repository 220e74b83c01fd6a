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
from solo_margins.host.detect import HostNotFoundError, form

# use_classification_transforms and gather are of the repository only.
_INTERFACE = """
    METHODS BaseMethod SimCLR BYOL MoCoV3 LinearModel
    parse_pretrain_cfg parse_linear_cfg
    NCropAugmentation FullTransformPipeline build_transform_pipeline build_transform_pipeline_dali
    use_classification_transforms
    Checkpointer WeightedKNNClassifier gather initialize_momentum_params build_backbone
    load_backbone pl
"""
INTERFACE = tuple(_INTERFACE.split())

# Classes of solo-learn's further methods; all but one are called alike in its table of methods.
_OTHER_CLASSES = """
    All4One DINO DeepClusterV2 MAE MoCoV2Plus NNBYOL NNCLR NNSiam ReSSL SimSiam SupCon SwAV VIbCReg
    VICReg WMSE
"""
OTHER_METHODS = {name: name.lower() for name in _OTHER_CLASSES.split()}
OTHER_METHODS["BarlowTwins"] = "barlow_twins"

# Names of solo-learn's own methods.
SOLO_METHODS = ("simclr", "byol", "mocov3", *OTHER_METHODS.values())

# Where the names of the interface are, by the version of solo-learn.
VERSIONS = {"main": "solo_margins.host.solo_main", "pypi": "solo_margins.host.solo_1_0_2"}

# Modules that the extra ``train`` brings.
_TRAINING_PACKAGES = """
    einops hydra kornia lightning numpy omegaconf PIL safetensors sklearn timm torch torchmetrics
    torchvision tqdm
"""
TRAINING_PACKAGES = tuple(_TRAINING_PACKAGES.split())

__all__ = ["INTERFACE", "OTHER_METHODS", "HostNotFoundError", "form", "is_loading", "load"]

_loading = False
_interface: ModuleType | None = None


def is_loading() -> bool:
    """Tell whether this layer is importing solo-learn right now."""
    return _loading


def load() -> ModuleType:
    """Import solo-learn, repaired or adapted, register our methods and return the interface.

    Raises:
        HostNotFoundError: no solo-learn is installed.
        ImportError: a package of the extra ``train`` is missing; the message names both.
    """
    global _loading, _interface
    if _interface is not None:
        return _interface
    _loading = True
    try:
        interface = importlib.import_module(VERSIONS[form()])
    except ModuleNotFoundError as missing:
        if missing.name not in TRAINING_PACKAGES:
            raise
        raise ImportError(
            f"solo-learn needs {missing.name}, which is not installed: run "
            '`pip install ".[train]"` in the folder of solo-margins.'
        ) from missing
    finally:
        _loading = False
    # Our methods import their parents from here while they are registered.
    _interface = interface
    if not registry.disabled():
        try:
            registry.add_to(interface)
        except BaseException:
            # Whoever asks again must not find a table without our methods.
            _interface = None
            raise
    return interface


def __getattr__(name: str) -> Any:
    if name == "FORM":
        return form()
    if name in OTHER_METHODS:
        # Subscription, not get(): a method that this version lacks answers with its own error.
        return load().METHODS[OTHER_METHODS[name]]
    if name in INTERFACE:
        return getattr(load(), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *INTERFACE, *OTHER_METHODS, "FORM"})
