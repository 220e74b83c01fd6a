"""The only door to solo-learn: one contract, whichever form of it is installed.

Everything else in this project imports its solo-learn names from here and is written once, against
the contract of solo-learn's repository (``main``). With the release of the package registry
(``pypi``) the same names are adapted to that contract. Nothing is imported before it is asked for.

>>> from solo_margins import host
>>> host.FORM in ("main", "pypi")  # doctest: +SKIP
True
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from solo_margins import registry
from solo_margins.host.detect import HostNotFoundError, form

CONTRACT = (
    # methods
    "METHODS",
    "BaseMethod",
    "BaseMomentumMethod",
    "SimCLR",
    "BYOL",
    "MoCoV3",
    "LinearModel",
    # configuration
    "parse_pretrain_cfg",
    "parse_linear_cfg",
    "omegaconf_select",
    # PIL data
    "NCropAugmentation",
    "FullTransformPipeline",
    "build_transform_pipeline",
    "prepare_pretrain_dataset",
    "prepare_pretrain_dataloader",
    "prepare_classification_transforms",
    "prepare_classification_data",
    # DALI data
    "PretrainDALIDataModule",
    "ClassificationDALIDataModule",
    "build_transform_pipeline_dali",
    # training
    "Checkpointer",
    "AutoResumer",
    "WeightedKNNClassifier",
    "LARS",
    "LinearWarmupCosineAnnealingLR",
    "MomentumUpdater",
    "initialize_momentum_params",
    "accuracy_at_k",
    "weighted_mean",
    "remove_bias_and_norm_from_weight_decay",
    "make_contiguous",
    # losses of the host's own methods
    "mocov3_loss_func",
    "simclr_loss_func",
    "byol_loss_func",
    "gather",
    "concat_all_gather_no_grad",
    # backbones
    "build_backbone",
    "load_backbone",
    "pl",
)

OTHER_METHODS = {
    "All4One": "all4one",
    "BarlowTwins": "barlow_twins",
    "DINO": "dino",
    "DeepClusterV2": "deepclusterv2",
    "MAE": "mae",
    "MoCoV2Plus": "mocov2plus",
    "NNBYOL": "nnbyol",
    "NNCLR": "nnclr",
    "NNSiam": "nnsiam",
    "ReSSL": "ressl",
    "SimSiam": "simsiam",
    "SupCon": "supcon",
    "SwAV": "swav",
    "VIbCReg": "vibcreg",
    "VICReg": "vicreg",
    "WMSE": "wmse",
}

CONTRACTS = {
    "main": "solo_margins.host.solo_main.api",
    "pypi": "solo_margins.host.solo_1_0_2",
}
"""Where the names of the contract are, by the form of solo-learn."""

TRAINING_PACKAGES = (
    "einops",
    "hydra",
    "lightning",
    "numpy",
    "omegaconf",
    "PIL",
    "pytorch_lightning",
    "safetensors",
    "sklearn",
    "timm",
    "torch",
    "torchmetrics",
    "torchvision",
    "tqdm",
)
"""Modules that the extra ``train`` brings."""

__all__ = ["CONTRACT", "OTHER_METHODS", "HostNotFoundError", "form", "is_loading", "load"]

_loading = False
_contract: ModuleType | None = None


def is_loading() -> bool:
    """Tell whether this layer is importing solo-learn right now."""
    return _loading


def load() -> ModuleType:
    """Import solo-learn, repaired or adapted, register our methods and return the contract.

    Raises:
        HostNotFoundError: no solo-learn is installed.
        ImportError: a package of the extra ``train`` is missing; the message names both.
    """
    global _loading, _contract
    if _contract is not None:
        return _contract
    _loading = True
    try:
        contract = importlib.import_module(CONTRACTS[form()])
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
    _contract = contract
    if not registry.disabled():
        try:
            registry.register()
        except BaseException:
            # Whoever asks again must not find a table without our methods.
            _contract = None
            raise
    return contract


def __getattr__(name: str) -> Any:
    if name == "FORM":
        return form()
    if name in OTHER_METHODS:
        # Subscription, not get(): a method that this form lacks answers with its own error.
        return load().METHODS[OTHER_METHODS[name]]
    if name in CONTRACT:
        return getattr(load(), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *CONTRACT, *OTHER_METHODS, "FORM"})
