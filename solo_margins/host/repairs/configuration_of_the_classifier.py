"""The linear classifier forgets its configuration, which every other module keeps as `cfg`: no
callback can tell what it is trained with.
"""

from typing import Any

from solo_margins.host.changes import Wrap


def keep_configuration(
    original: Any, self: Any, backbone: Any, cfg: Any, loss_func: Any = None, mixup_func: Any = None
) -> None:
    """Keep the configuration of a linear classifier."""
    original(self, backbone, cfg, loss_func, mixup_func)
    self.cfg = cfg


CHANGES = (Wrap("methods.linear", "LinearModel.__init__", keep_configuration),)
