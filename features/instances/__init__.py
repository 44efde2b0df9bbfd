"""What the configurations of a layout graph are made of: (node, row) and (pair, rows), each with columns."""
