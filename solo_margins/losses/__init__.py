"""Contrastive losses with margins. They need torch and nothing else."""

from solo_margins.losses.alignment import aligned_temperature, aligned_temperature_by_indexes
from solo_margins.losses.byol import byol_curv_loss_func
from solo_margins.losses.deepclusterv2 import deepclusterv2_margin_loss_func
from solo_margins.losses.generalized import generalized_info_nce_loss_func
from solo_margins.losses.margins import Margins
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

__all__ = [
    "MarginNTXentLoss",
    "Margins",
    "aligned_temperature",
    "aligned_temperature_by_indexes",
    "byol_curv_loss_func",
    "deepclusterv2_margin_loss_func",
    "distance_polarization_loss_func",
    "distance_polarization_with_count",
    "generalized_info_nce_loss_func",
    "mocov2plus_margin_loss_func",
    "mocov3_margin_loss_func",
    "nnclr_margin_loss_func",
    "simclr_debiased_loss_func",
    "simclr_hard_negative_loss_func",
    "simclr_margin_loss_func",
    "simsiam_curv_loss_func",
]
