"""Names of solo-learn that only tests need, from wherever the installed version has them."""

import pytest

from solo_margins import host

host.load()

only_on_the_release = pytest.mark.skipif(
    host.FORM == "main", reason="tests/host/repairs tests the same on solo-learn's repository"
)

if host.FORM == "main":
    from solo.losses.byol import byol_loss_func
    from solo.losses.mocov3 import mocov3_loss_func
    from solo.losses.simclr import simclr_loss_func
    from solo.methods.base import BaseMomentumMethod
    from solo.utils.lars import LARS
    from solo.utils.lr_scheduler import LinearWarmupCosineAnnealingLR
    from solo.utils.metrics import accuracy_at_k
    from solo.utils.misc import (
        concat_all_gather_no_grad,
        remove_bias_and_norm_from_weight_decay,
    )
else:
    from solo_margins.host.repairs.warmup_cosine import (
        WarmupCosineLR as LinearWarmupCosineAnnealingLR,
    )
    from solo_margins.host.solo_1_0_2.base import BaseMomentumMethod
    from solo_margins.host.solo_1_0_2.losses import (
        accuracy_at_k,
        byol_loss_func,
        concat_all_gather_no_grad,
        mocov3_loss_func,
        simclr_loss_func,
    )
    from solo_margins.host.solo_1_0_2.optim import (
        LARS,
        remove_bias_and_norm_from_weight_decay,
    )

__all__ = [
    "LARS",
    "BaseMomentumMethod",
    "LinearWarmupCosineAnnealingLR",
    "accuracy_at_k",
    "byol_loss_func",
    "concat_all_gather_no_grad",
    "mocov3_loss_func",
    "only_on_the_release",
    "remove_bias_and_norm_from_weight_decay",
    "simclr_loss_func",
]
