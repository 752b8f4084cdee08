"""The version of this package, as written into models, checkpoints and results."""

__version__ = "0.3.0.dev0"
