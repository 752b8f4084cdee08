"""The version of this package, as written into models, checkpoints and results."""

__version__ = "0.2.0"
