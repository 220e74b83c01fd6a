"""Margin-aware contrastive learning for solo-learn."""

__version__ = "0.1.0"
