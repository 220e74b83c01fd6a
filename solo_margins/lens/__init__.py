"""Shows what margins do to gradients: curves, a callback for training, and a report."""
