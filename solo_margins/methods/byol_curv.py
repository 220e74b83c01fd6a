"""BYOL with margins."""

from solo_margins import host


class BYOLCurv(host.BYOL):  # type: ignore[misc]
    """BYOL whose loss takes margins."""
