"""The fast CPU engine: factor models, every step in closed form, compiled by numba."""
