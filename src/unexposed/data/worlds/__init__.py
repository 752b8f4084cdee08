"""Worlds of known exposure and relevance, and the clicks that they log."""
