"""Names of solo-learn that only tests need, from wherever the installed version has them."""

import pytest

from solo_margins import host

host.load()

only_on_the_release = pytest.mark.skipif(
    host.FORM == "main", reason="tests/host/repairs tests the same on solo-learn's repository"
)
needs_the_repository = pytest.mark.skipif(
    host.FORM != "main",
    reason="not offered with solo-learn 1.0.2: solo-learn's repository (1.0.6 or later) has it",
)

if host.FORM == "main":
    from solo.losses.byol import byol_loss_func
    from solo.losses.mocov3 import mocov3_loss_func
    from solo.losses.simclr import simclr_loss_func
    from solo.methods.base import BaseMomentumMethod
    from solo.utils.lr_scheduler import LinearWarmupCosineAnnealingLR
    from solo.utils.metrics import accuracy_at_k
    from solo.utils.misc import concat_all_gather_no_grad, gather
else:
    from solo.losses.byol import byol_loss_func
    from solo.utils.metrics import accuracy_at_k

    from solo_margins.host.solo_1_0_2.base import BaseMomentumMethod, WarmupCosineLR
    from solo_margins.host.solo_1_0_2.methods import mocov3_loss_func, simclr_loss_func
    from solo_margins.losses.gather import batch_sizes
    from solo_margins.losses.gather import gather as gather_rows

    def gather(rows):
        """Return the rows of all processes, as the release's losses see them."""
        return gather_rows(rows, batch_sizes(rows))

    concat_all_gather_no_grad = gather

    def LinearWarmupCosineAnnealingLR(optimizer, warmup, total, warmup_start_lr, eta_min=0.0):
        """Return the release's schedule by the arguments of the repository's."""
        return WarmupCosineLR(
            optimizer,
            warmup_epochs=warmup,
            max_epochs=total,
            warmup_start_lr=warmup_start_lr,
            eta_min=eta_min,
        )


__all__ = [
    "BaseMomentumMethod",
    "LinearWarmupCosineAnnealingLR",
    "accuracy_at_k",
    "byol_loss_func",
    "concat_all_gather_no_grad",
    "gather",
    "mocov3_loss_func",
    "needs_the_repository",
    "only_on_the_release",
    "simclr_loss_func",
]
