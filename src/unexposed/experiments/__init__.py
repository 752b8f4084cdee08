"""Experiment files: their format, running them, their results."""
