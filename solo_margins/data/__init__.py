"""Data that comes with the project, laid out as image folders."""
