"""Choice of the model that ranks a graph, and explanations of its scores."""
