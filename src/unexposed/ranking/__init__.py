"""Scores become ranks: blocks of users, top-k, metrics, catalogue figures, held-out quality."""
