"""Engines of CJMF: `step.py` says what a step computes."""
