"""HLO programs: reading, encoding as the dataset's arrays, and labels from the XLA compiler."""
