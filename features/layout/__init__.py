"""Layout configurations: the shared context of a graph, and one file per physical idea."""
