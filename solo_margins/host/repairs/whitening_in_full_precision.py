"""W-MSE in half precision on a CPU fails with `linalg.cholesky: the input is not
positive-definite`: the covariance is rounded to half precision, too.
"""

from typing import Any

import torch

from solo_margins.host.changes import Wrap


def whiten_in_full_precision(original: Any, self: Any, x: Any) -> Any:
    """Whiten in float32 or wider, whatever the features are rounded to."""
    with torch.autocast(x.device.type, enabled=False):
        return original(self, x.to(torch.promote_types(x.dtype, torch.float32)))


CHANGES = (Wrap("utils.whitening", "Whitening2d.forward", whiten_in_full_precision),)
