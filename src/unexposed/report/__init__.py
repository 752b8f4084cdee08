"""The page of a model, and the page of the experiments."""
