"""The linear classifier forgets its configuration, which every other module keeps as `cfg`: no
callback can tell what it is trained with.
"""

from typing import Any

from omegaconf import DictConfig

from solo_margins.host.changes import Wrap


def keep_configuration(
    original: Any, self: Any, backbone: Any, cfg: DictConfig, *losses: Any, **named_losses: Any
) -> None:
    """Keep the configuration of a linear classifier."""
    original(self, backbone, cfg, *losses, **named_losses)
    self.cfg = cfg


CHANGES = (Wrap("methods.linear", "LinearModel.__init__", keep_configuration),)
