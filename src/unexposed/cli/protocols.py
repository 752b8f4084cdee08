"""`unexposed protocols`: what `--protocol` can name."""

from unexposed.cli.options import AsJson


def protocols(as_json: AsJson = False) -> None:
    """Show the protocols, which say who is evaluated, on what and by which metrics."""
    from unexposed.cli import tables
    from unexposed.evaluation.protocols import PROTOCOLS

    said = {name: f"{by.about} ({', '.join(by.metrics)})" for name, by in PROTOCOLS.items()}
    tables.listing(said, as_json=as_json)
