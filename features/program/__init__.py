"""What a program is, whatever its configurations are: facts about nodes and tensors, columns of the graph."""
