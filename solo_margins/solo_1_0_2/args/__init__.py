"""Parsed configurations."""
