"""Losses that the release lacks, or computes over one process alone."""
