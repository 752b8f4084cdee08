"""What a step sees: clicks with their drawn items, and the validation set."""
