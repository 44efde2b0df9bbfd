"""One graph ranked: its model and rows, the result, how far to trust it, and the segments of an explanation."""
