"""Margin-aware methods, registered in solo-learn's ``METHODS``."""

from solo_margins import registry

# Whichever of the modules is imported first, all of them end up in METHODS.
registry.register()
