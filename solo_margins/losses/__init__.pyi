"""The public names of the losses, and the modules that define them."""

from solo_margins.losses.byol import byol_curv_loss_func as byol_curv_loss_func
from solo_margins.losses.deepclusterv2 import (
    deepclusterv2_margin_loss_func as deepclusterv2_margin_loss_func,
)
from solo_margins.losses.generalized import (
    generalized_info_nce_loss_func as generalized_info_nce_loss_func,
)
from solo_margins.losses.margins import AlignedTemperature as AlignedTemperature
from solo_margins.losses.margins import Margins as Margins
from solo_margins.losses.mocov2plus import (
    mocov2plus_margin_loss_func as mocov2plus_margin_loss_func,
)
from solo_margins.losses.mocov3 import mocov3_margin_loss_func as mocov3_margin_loss_func
from solo_margins.losses.nnclr import nnclr_margin_loss_func as nnclr_margin_loss_func
from solo_margins.losses.ntxent import MarginNTXentLoss as MarginNTXentLoss
from solo_margins.losses.polarization import (
    distance_polarization_loss_func as distance_polarization_loss_func,
)
from solo_margins.losses.polarization import (
    distance_polarization_with_count as distance_polarization_with_count,
)
from solo_margins.losses.simclr import simclr_debiased_loss_func as simclr_debiased_loss_func
from solo_margins.losses.simclr import (
    simclr_hard_negative_loss_func as simclr_hard_negative_loss_func,
)
from solo_margins.losses.simclr import simclr_margin_loss_func as simclr_margin_loss_func
from solo_margins.losses.simsiam import simsiam_curv_loss_func as simsiam_curv_loss_func
