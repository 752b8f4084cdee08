"""`unexposed metrics`: the readings that protocols choose from."""

from unexposed.cli.options import AsJson


def metrics(as_json: AsJson = False) -> None:
    """Show the metrics, one line each; a protocol names those that it reports."""
    from unexposed.cli import tables
    from unexposed.ranking.metrics import METRICS, about

    tables.listing({name: about(name) for name in METRICS}, as_json=as_json)
