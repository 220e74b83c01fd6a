"""SimCLR with margins."""

from solo_margins import host


class SimCLRMargin(host.SimCLR):
    """SimCLR whose loss takes margins."""
