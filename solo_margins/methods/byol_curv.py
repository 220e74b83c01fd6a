"""BYOL with margins."""

from solo_margins import host


class BYOLCurv(host.BYOL):
    """BYOL whose loss takes margins."""
