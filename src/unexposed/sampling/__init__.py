"""The input of a training step: clicks with their drawn items, and the validation set."""
