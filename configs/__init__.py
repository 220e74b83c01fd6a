"""Hydra configurations, found under ``pkg://solo_margins.configs``."""
