"""Protocols, comparison of methods, significance."""
