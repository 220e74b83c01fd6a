"""What margins do to gradients, made visible: curves, a callback for training, and a report."""
