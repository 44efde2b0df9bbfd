"""Which model ranks a graph, the rows that it takes, and the ranking."""
