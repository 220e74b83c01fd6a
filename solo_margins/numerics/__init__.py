"""What happens when a loss or a gradient is no number any more."""
