"""What training leaves: Model, recommend, filters, fold-in, update, save and load, export."""
