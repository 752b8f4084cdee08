"""`unexposed methods`: what `--method` and `--methods` can name."""

from unexposed.cli.options import AsJson


def methods(as_json: AsJson = False) -> None:
    """Show the methods, one line each; the reference lists their settings."""
    from unexposed.cli import tables
    from unexposed.methods import METHODS, about

    tables.listing({name: about(name) for name in METHODS}, as_json=as_json)
