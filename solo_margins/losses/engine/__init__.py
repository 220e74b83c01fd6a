"""The losses for speed and memory: tiles of rows, gradients made in the forward pass."""
