"""Programs: reading HLO modules, encoding them as the dataset's node columns, candidate configurations."""
