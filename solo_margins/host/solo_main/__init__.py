"""solo-learn's repository form: repaired, then adapted to our configurations.

- ``repairs``: what is broken in it, as a table; importing that imports nothing of solo-learn.
- ``adaptations``: what our own configurations ask of it beyond that.
- ``contract``: its names after both.
"""
