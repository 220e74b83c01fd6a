"""Writes our losses, methods and repairs into a checkout of solo-learn as its own source.

Whatever is written is produced from the sources of this package and of the checkout; nothing of it
is kept here as text, except for the frame around tests and documentation pages.
"""
