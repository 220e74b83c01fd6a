"""The papers' tables and figures: their grids of runs, how to run them, and what comes out."""
