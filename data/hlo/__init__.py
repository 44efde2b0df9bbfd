"""HLO programs: reading, and encoding as the dataset's arrays."""
