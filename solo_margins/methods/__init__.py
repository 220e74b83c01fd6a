"""Margin-aware methods, registered in solo-learn's ``METHODS``."""

from solo_margins import registry

# Whichever of the modules is imported first, solo-learn can be imported and has all of them.
registry.register()
