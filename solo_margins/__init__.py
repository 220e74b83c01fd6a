"""Margin-aware contrastive learning for solo-learn."""

__version__ = "0.1.0"


def register() -> None:
    """Add our methods and backbones to solo-learn's tables; a second call changes nothing.

    solo-learn's own programs need no call: our Hydra plugin makes it there.
    """
    from solo_margins import registry

    registry.register()
