"""The table of methods, with those that our methods derive from."""

from solo_margins.solo_1_0_2.methods.base import BaseMethod, BaseMomentumMethod
from solo_margins.solo_1_0_2.methods.byol import BYOL
from solo_margins.solo_1_0_2.methods.linear import LinearModel
from solo_margins.solo_1_0_2.methods.mocov3 import MoCoV3
from solo_margins.solo_1_0_2.methods.simclr import SimCLR

METHODS = {
    "base": BaseMethod,
    "linear": LinearModel,
    "byol": BYOL,
    "mocov3": MoCoV3,
    "simclr": SimCLR,
}

__all__ = [
    "BYOL",
    "METHODS",
    "BaseMethod",
    "BaseMomentumMethod",
    "LinearModel",
    "MoCoV3",
    "SimCLR",
]
