"""Adds our method and its configuration to solo-learn.

Hydra imports every module of the namespace package ``hydra_plugins`` in all of its programs. It has
no ``__init__.py``, and what it imports at the top should be little.
"""

import sys

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin


class AlignUniformSearchPath(SearchPathPlugin):
    """Called once by Hydra, before it looks for configurations."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Enter the method into solo-learn's table, and its folder into Hydra's list."""
        if "solo.methods" not in sys.modules:  # another program than solo-learn's
            return
        from align_uniform import AlignUniform
        from solo.methods import METHODS

        METHODS["align_uniform"] = AlignUniform
        search_path.append(provider="align-uniform", path="pkg://align_uniform")
