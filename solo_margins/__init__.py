"""Margin-aware contrastive learning for solo-learn."""

from solo_margins import registry

__version__ = "0.1.0"

registry.register_when_host_loads()
