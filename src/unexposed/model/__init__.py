"""A fitted model: recommend, filter, fold in users, update, save, load and export."""
