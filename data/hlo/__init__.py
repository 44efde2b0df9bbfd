"""Programs: HLO modules in, the dataset's node columns from them, candidate configurations."""
