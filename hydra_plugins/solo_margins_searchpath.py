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
from hydra.core.object_type import ObjectType
from hydra.errors import CompactHydraException
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf


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
        search_path.append("solo-margins", f"{RecipeSource.scheme()}://")


class RecipeSource(ConfigSource):
    """The recipes of :mod:`solo_margins.recipes` as ``recipe/<method>/<data>-<variant>``.

    Neither files nor Hydra's ConfigStore: an undefined recipe ends with one sentence, where these
    would list the recipes of all data.
    """

    @staticmethod
    def scheme() -> str:
        """Return the scheme of the search path."""
        return "solo-margins-recipes"

    def load_config(self, config_path: str) -> ConfigResult:
        """Return the settings of a recipe, with its variant: the default depends on the data."""
        from solo_margins.recipes import RECIPES

        _, method, name = config_path.split("/", 2)
        data, _, variant = name.partition("-")
        values = RECIPES.get(method, {}).get(data, {}).get(variant)
        if values is None:
            # The name of an undefined recipe is a sentence, see solo_margins.recipes.cell_name.
            raise CompactHydraException(name)
        config = OmegaConf.create({"variant": variant, "method_kwargs": values})
        return ConfigResult(self.provider, self.full_path(), config, {"package": "_global_"})

    def is_group(self, config_path: str) -> bool:
        """Tell whether a path is that of the recipes of one of our methods."""
        from solo_margins.recipes import RECIPES

        return config_path in (f"recipe/{method}" for method in RECIPES)

    def is_config(self, config_path: str) -> bool:
        """Tell whether a path is that of a recipe, defined or not."""
        return self.is_group("/".join(config_path.split("/")[:2])) and config_path.count("/") > 1

    def available(self) -> bool:
        """Tell that there are recipes."""
        return True

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """Return nothing: recipes are chosen by data and variant."""
        return []
