"""The tables of `docs/`, from results and studies."""
