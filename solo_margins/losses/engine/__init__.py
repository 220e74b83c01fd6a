"""The losses optimised for speed and memory: tiles of rows, gradients in the forward pass."""
