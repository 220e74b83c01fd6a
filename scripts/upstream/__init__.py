"""Our methods and repairs, written into a checkout of solo-learn."""
