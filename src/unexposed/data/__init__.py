"""A log becomes Clicks: reading, ids, splitting, data sets, simulated worlds, writing tables."""
