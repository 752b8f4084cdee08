"""Search for settings on held-out clicks."""
