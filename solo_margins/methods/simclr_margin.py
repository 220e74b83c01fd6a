"""SimCLR with margins."""

from solo_margins import host


class SimCLRMargin(host.SimCLR):  # type: ignore[misc]
    """SimCLR whose loss takes margins."""
