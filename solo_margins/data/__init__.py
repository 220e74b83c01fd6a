"""Where images are, and how batches are made of them."""
