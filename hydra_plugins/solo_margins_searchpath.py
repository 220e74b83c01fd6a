"""Hydra plugin: our configurations and methods for programs that use solo-learn.

Hydra imports this module in every application of the environment. For those that have loaded
neither solo-learn nor solo-margins it does nothing: it imports nothing and adds no configuration
that could hide or complete one of theirs. ``SOLO_MARGINS_DISABLE=1`` switches it off altogether.
"""

from __future__ import annotations

import os
import sys
import warnings

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin


def _concerns_us() -> bool:
    if os.environ.get("SOLO_MARGINS_DISABLE", "") not in ("", "0"):
        return False
    return "solo.methods" in sys.modules or "solo_margins" in sys.modules


def _register() -> None:
    """Register our methods; a solo-learn that they do not fit runs its own as without us."""
    from solo_margins import registry

    try:
        registry.register()
    except (ImportError, AttributeError) as reason:
        warnings.warn(f"solo-margins has not registered its methods: {reason}", stacklevel=2)


class SoloMarginsSearchPathPlugin(SearchPathPlugin):
    """Appends ``pkg://solo_margins.configs``, so that a program's own files come first."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Add our configurations to the end of the search path, and register our methods."""
        if not _concerns_us():
            return
        from solo_margins import resolvers

        if "solo.methods" in sys.modules:
            _register()
        resolvers.install()
        search_path.append("solo-margins", "pkg://solo_margins.configs")
