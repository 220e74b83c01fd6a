"""The losses optimised for speed and memory: tiles of rows, gradients in the forward pass.

Its functions are those of `solo_margins.losses.plain`.
"""

from solo_margins.losses.engine.comparisons import prototypes, query_key, queue, same_id, views
from solo_margins.losses.engine.pairs import positives_only
from solo_margins.losses.engine.polarization import polarization

__all__ = [
    "polarization",
    "positives_only",
    "prototypes",
    "query_key",
    "queue",
    "same_id",
    "views",
]
