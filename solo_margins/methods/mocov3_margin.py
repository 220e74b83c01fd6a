"""MoCoV3 with margins."""

from solo_margins import host


class MoCoV3Margin(host.MoCoV3):
    """MoCoV3 whose loss takes margins."""
