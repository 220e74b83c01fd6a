"""Contrastive losses with margins. They need torch and nothing else.

Each is imported when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from solo_margins.losses.byol import byol_curv_loss_func
    from solo_margins.losses.deepclusterv2 import deepclusterv2_margin_loss_func
    from solo_margins.losses.generalized import generalized_info_nce_loss_func
    from solo_margins.losses.margins import AlignedTemperature, Margins
    from solo_margins.losses.mocov2plus import mocov2plus_margin_loss_func
    from solo_margins.losses.mocov3 import mocov3_margin_loss_func
    from solo_margins.losses.nnclr import nnclr_margin_loss_func
    from solo_margins.losses.ntxent import MarginNTXentLoss
    from solo_margins.losses.polarization import (
        distance_polarization_loss_func,
        distance_polarization_with_count,
    )
    from solo_margins.losses.simclr import (
        simclr_debiased_loss_func,
        simclr_hard_negative_loss_func,
        simclr_margin_loss_func,
    )
    from solo_margins.losses.simsiam import simsiam_curv_loss_func

_MODULES = {
    "byol": "byol_curv_loss_func",
    "deepclusterv2": "deepclusterv2_margin_loss_func",
    "generalized": "generalized_info_nce_loss_func",
    "margins": "AlignedTemperature Margins",
    "mocov2plus": "mocov2plus_margin_loss_func",
    "mocov3": "mocov3_margin_loss_func",
    "nnclr": "nnclr_margin_loss_func",
    "ntxent": "MarginNTXentLoss",
    "polarization": "distance_polarization_loss_func distance_polarization_with_count",
    "simclr": "simclr_debiased_loss_func simclr_hard_negative_loss_func simclr_margin_loss_func",
    "simsiam": "simsiam_curv_loss_func",
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = list(_PLACES)


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
