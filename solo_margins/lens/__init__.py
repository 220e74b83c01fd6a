"""Shows what margins do to gradients: curves, a callback for training, and a report.

The observer of a run is `Lens`, in Lightning or in a loop of one's own: ``callback``,
``capture``, ``measures``, ``rules``, ``records`` and ``settings``. The reader draws and prints what
was recorded: ``curves``, ``curve_figure``, ``runs``, ``figures``, ``report`` and ``health``. It
imports from the observer; the observer imports nothing from it, and neither plotly nor matplotlib.
"""

from solo_margins.lens.callback import Lens
from solo_margins.lens.settings import LensSettings

__all__ = ["Lens", "LensSettings"]
