"""How a step is run: `reference` is the specification, which `cpu` and `cuda` agree with."""
