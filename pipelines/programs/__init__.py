"""User programs: loading, candidate configurations, compilation, timing, graph files."""
