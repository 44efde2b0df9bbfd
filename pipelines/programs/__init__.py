"""User programs: loading, compilation, labelling and writing as graph files."""
